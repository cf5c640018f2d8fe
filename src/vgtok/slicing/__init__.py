"""Other people's detectors at our budget: a slicer, its tiles, guides and merge; and a budget over a stream."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.slicing.guides import GUIDES, pixel_values, score_values, tile_order
    from vgtok.slicing.merge import Merged, cut_by_tile, merge_boxes
    from vgtok.slicing.onnx_yolo import YoloOnnx
    from vgtok.slicing.sliced import Sliced, Spent
    from vgtok.slicing.slicer import Slicer
    from vgtok.slicing.stream import StreamBudget
    from vgtok.slicing.tiles import Layout, lay_out

__all__ = [
    "GUIDES",
    "Layout",
    "Merged",
    "Sliced",
    "Slicer",
    "Spent",
    "StreamBudget",
    "YoloOnnx",
    "cut_by_tile",
    "lay_out",
    "merge_boxes",
    "pixel_values",
    "score_values",
    "tile_order",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "guides": ["GUIDES", "pixel_values", "score_values", "tile_order"],
        "merge": ["Merged", "cut_by_tile", "merge_boxes"],
        "onnx_yolo": ["YoloOnnx"],
        "sliced": ["Sliced", "Spent"],
        "slicer": ["Slicer"],
        "stream": ["StreamBudget"],
        "tiles": ["Layout", "lay_out"],
    },
)
