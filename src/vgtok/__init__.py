"""VGTok: choose from the pixels alone how finely each region of an image is read.

`Tokenizer` turns an image into `Tokens`, a strict partition into 16, 32 and 64 px patches at a token budget. `load`
returns a `Detector` that runs at a budget, `wrap` makes a model of your own do so, `Slicer` any detector. Names are
imported on first use, so `import vgtok` is fast; every package below exports its public names in the same way.
"""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.loading import load
    from vgtok.errors import BudgetError, InputError, VGTokError
    from vgtok.export.runtime import OnnxDetector
    from vgtok.hosts.wrapping import unwrap, wrap
    from vgtok.slicing.slicer import Slicer
    from vgtok.slicing.stream import StreamBudget
    from vgtok.tokenize.canvas import Canvas
    from vgtok.tokenize.retention import RetentionTable, load_table
    from vgtok.tokenize.tokenizer import Tokenizer
    from vgtok.tokenize.tokens import Tokens
    from vgtok.train.finetune import finetune

__version__ = "0.2.0"

__all__ = [
    "BudgetError",
    "Canvas",
    "Detector",
    "InputError",
    "OnnxDetector",
    "RetentionTable",
    "Slicer",
    "StreamBudget",
    "Tokenizer",
    "Tokens",
    "VGTokError",
    "__version__",
    "finetune",
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
        "slicing.slicer": ["Slicer"],
        "slicing.stream": ["StreamBudget"],
        "train.finetune": ["finetune"],
        "errors": ["BudgetError", "InputError", "VGTokError"],
    },
)
