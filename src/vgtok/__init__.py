"""VGTok: from pixels alone, how finely each region of a frame deserves to be read.

`Tokenizer` turns an image into `Tokens`, a strict partition of the frame into 16, 32 and 64 px patches
at the token budget you name; `load` gives a `Detector` that finds objects at that budget. Names load on first use, so
`import vgtok` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.loading import load
    from vgtok.errors import BudgetError, InputError, VGTokError
    from vgtok.export.runtime import OnnxDetector
    from vgtok.hosts.wrap import unwrap, wrap
    from vgtok.tokenize.canvas import Canvas
    from vgtok.tokenize.retention import RetentionTable, load_table
    from vgtok.tokenize.tokenizer import Tokenizer
    from vgtok.tokenize.tokens import Tokens

__version__ = "0.1.0"

_HOME = {
    "Tokenizer": "vgtok.tokenize.tokenizer",
    "Tokens": "vgtok.tokenize.tokens",
    "Canvas": "vgtok.tokenize.canvas",
    "RetentionTable": "vgtok.tokenize.retention",
    "load_table": "vgtok.tokenize.retention",
    "load": "vgtok.detect.loading",
    "Detector": "vgtok.detect.detector",
    "OnnxDetector": "vgtok.export.runtime",
    "wrap": "vgtok.hosts.wrap",
    "unwrap": "vgtok.hosts.wrap",
    "VGTokError": "vgtok.errors",
    "InputError": "vgtok.errors",
    "BudgetError": "vgtok.errors",
}

__all__ = [
    "BudgetError",
    "Canvas",
    "Detector",
    "InputError",
    "OnnxDetector",
    "RetentionTable",
    "Tokenizer",
    "Tokens",
    "VGTokError",
    "__version__",
    "load",
    "load_table",
    "unwrap",
    "wrap",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'vgtok' has no attribute '{name}'")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from vgtok.errors import explained

        raise explained(error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
