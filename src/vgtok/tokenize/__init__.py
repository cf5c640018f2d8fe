"""Turn images into tokens: a strict partition of each image at a token budget, with numpy and OpenCV."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.tokenize.calibrate import measure_table
    from vgtok.tokenize.canvas import Canvas, ImageLike, fit_canvas, read_image
    from vgtok.tokenize.geometry import CanvasPixels, Extent, Pyramid, nest, pool_bands
    from vgtok.tokenize.retention import RetentionCurve, RetentionTable, load_table, shipped_tables
    from vgtok.tokenize.scores import SCORES, Scorer
    from vgtok.tokenize.split import GATES, Gate, Structure
    from vgtok.tokenize.tokenizer import PRESETS, Tokenizer, preset
    from vgtok.tokenize.tokens import Tokens

__all__ = [
    "GATES",
    "PRESETS",
    "SCORES",
    "Canvas",
    "CanvasPixels",
    "Extent",
    "Gate",
    "ImageLike",
    "Pyramid",
    "RetentionCurve",
    "RetentionTable",
    "Scorer",
    "Structure",
    "Tokenizer",
    "Tokens",
    "fit_canvas",
    "load_table",
    "measure_table",
    "nest",
    "pool_bands",
    "preset",
    "read_image",
    "shipped_tables",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "calibrate": ["measure_table"],
        "canvas": ["Canvas", "ImageLike", "fit_canvas", "read_image"],
        "geometry": ["CanvasPixels", "Extent", "Pyramid", "nest", "pool_bands"],
        "retention": ["RetentionCurve", "RetentionTable", "load_table", "shipped_tables"],
        "scores": ["SCORES", "Scorer"],
        "split": ["GATES", "Gate", "Structure"],
        "tokenizer": ["PRESETS", "Tokenizer", "preset"],
        "tokens": ["Tokens"],
    },
)
