"""Large frames at our budget: a slicer for any detector, windows over frames of any size, geo rasters, streams."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.slicing.frames import ArrayFrame, Frame, FramePartition, partition_frame
    from vgtok.slicing.guides import GUIDES, pixel_values, score_values, tile_order
    from vgtok.slicing.merge import Merged, cut_by_tile, merge_boxes
    from vgtok.slicing.onnx_yolo import YoloOnnx
    from vgtok.slicing.raster import Georeference, RasterFrame, open_raster
    from vgtok.slicing.sliced import Sliced, Spent
    from vgtok.slicing.slicer import Slicer
    from vgtok.slicing.stream import StreamBudget
    from vgtok.slicing.tiles import Layout, lay_out
    from vgtok.slicing.windows import WindowFound, Windows

__all__ = [
    "GUIDES",
    "ArrayFrame",
    "Frame",
    "FramePartition",
    "Georeference",
    "Layout",
    "Merged",
    "RasterFrame",
    "Sliced",
    "Slicer",
    "Spent",
    "StreamBudget",
    "WindowFound",
    "Windows",
    "YoloOnnx",
    "cut_by_tile",
    "lay_out",
    "merge_boxes",
    "open_raster",
    "partition_frame",
    "pixel_values",
    "score_values",
    "tile_order",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "frames": ["ArrayFrame", "Frame", "FramePartition", "partition_frame"],
        "guides": ["GUIDES", "pixel_values", "score_values", "tile_order"],
        "merge": ["Merged", "cut_by_tile", "merge_boxes"],
        "onnx_yolo": ["YoloOnnx"],
        "raster": ["Georeference", "RasterFrame", "open_raster"],
        "sliced": ["Sliced", "Spent"],
        "slicer": ["Slicer"],
        "stream": ["StreamBudget"],
        "tiles": ["Layout", "lay_out"],
        "windows": ["WindowFound", "Windows"],
    },
)
