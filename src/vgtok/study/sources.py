"""What a kept result depends on besides its inputs: the code that computes it, and the libraries under that code.

The package's version number says nothing between releases, so results are kept under a digest of the sources
themselves. Comments and layout do not count: the digest is of the syntax tree.
"""

import ast
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

DETECTION = (
    "tokenize",
    "encode",
    "detect",
    "study/cells.py",
    "study/counts.py",
    "study/random_score.py",
    "study/slicing.py",
)
"""What decides the detections of a model in a frame: the way from pixels to boxes, and the readers of the studies."""

TRAINING = (*DETECTION[:3], "train", "evaluate", "data")
"""What decides the result of a training run on rendered scenes."""

_LIBRARIES = ("numpy", "opencv-python-headless", "pillow", "torch")


@cache
def code_digest(parts: tuple[str, ...]) -> str:
    """A digest of the modules and packages of vgtok named by their paths, and of the libraries' versions."""
    digest = hashlib.sha256("\n".join(f"{name} {_version(name)}" for name in _LIBRARIES).encode())
    root = Path(str(files("vgtok")))
    for part in parts:
        place = root / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            tree = ast.dump(ast.parse(path.read_bytes()))
            digest.update(f"{path.relative_to(root).as_posix()}\n{tree}\n".encode())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        # The library came under another name, as opencv-python does, or its metadata was left out.
        return "unknown"
