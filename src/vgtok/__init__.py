"""VGTok: from pixels alone, how finely each region of an image deserves to be read.

`Tokenizer` turns an image into `Tokens`, a strict partition into 16, 32 and 64 px patches at the token budget you name;
`load` gives a `Detector` that finds objects at that budget; `wrap` gives the budget to a model of your own. Names load
on first use, so `import vgtok` costs next to nothing. Each package below offers its own names in the same way.
"""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.loading import load
    from vgtok.errors import BudgetError, InputError, VGTokError
    from vgtok.export.runtime import OnnxDetector
    from vgtok.hosts.wrapping import unwrap, wrap
    from vgtok.tokenize.canvas import Canvas
    from vgtok.tokenize.retention import RetentionTable, load_table
    from vgtok.tokenize.tokenizer import Tokenizer
    from vgtok.tokenize.tokens import Tokens

__version__ = "0.2.0"

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tokenize.tokenizer": ["Tokenizer"],
        "tokenize.tokens": ["Tokens"],
        "tokenize.canvas": ["Canvas"],
        "tokenize.retention": ["RetentionTable", "load_table"],
        "detect.loading": ["load"],
        "detect.detector": ["Detector"],
        "export.runtime": ["OnnxDetector"],
        "hosts.wrapping": ["unwrap", "wrap"],
        "errors": ["BudgetError", "InputError", "VGTokError"],
    },
)
