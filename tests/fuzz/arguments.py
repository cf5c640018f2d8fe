"""Tokenizer arguments, arrays, tensors and pictures of every shape and type, as a JSON description of the call."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.fuzz.mutations import ODD
from vgtok import Tokenizer
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import GATES

_SANE: dict[str, Sequence[Any]] = {
    "budget": (0.0625, 0.25, 0.4, 0.7, 1.0),
    "percentile": (0, 50.0, 74.82, 100),
    "rank": (0.0, 0.2, 0.9),
    "scorer": tuple(SCORES),
    "gate": tuple(GATES),
    "splitter": ("quadtree", "single_pass"),
    "canvas": ("native", (128, 64), (96, 100)),
}
_DTYPES = (
    "uint8",
    "uint16",
    "int8",
    "int64",
    "float32",
    "float64",
    "bool",
    "complex64",
    "object",
    "str",
    "datetime64[s]",
)
_MODES = (
    "RGB",
    "RGBA",
    "L",
    "LA",
    "La",
    "P",
    "PA",
    "1",
    "I",
    "F",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
    "I;16",
    "RGBX",
    "RGBa",
)
_SIZES = (0, 1, 2, 3, 4, 15, 16, 33, 65, 200)


def make_arguments(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A call as JSON: the tokenizer's arguments, most of them sane, and the image."""
    aim = random.choice(("budget", "percentile"))
    others = [name for name in _SANE if random.random() < 0.05 or name not in ("budget", "percentile")]
    names = [aim, *random.sample(others, random.randrange(4))]
    odd = [value for value in ODD if value != "nested deeply"]
    arguments = {n: random.choice(odd if random.random() < 0.15 else _SANE[n]) for n in names}
    arguments.setdefault("canvas", random.choice(_SANE["canvas"]))
    image = {
        "form": random.choice(("array", "array", "tensor", "sparse", "meta", "pillow", "odd", "batch")),
        "dtype": random.choice(("uint8", random.choice(_DTYPES))),
        "mode": random.choice(_MODES),
        "shape": [random.choice(_SIZES) for _ in range(random.choice((1, 2, 2, 2, 2, 2)))]
        + random.choice(([], [1], [3], [4], [5])),
        "fill": random.choice((0, 1, 200, float("nan"), float("inf"))),
        "odd": random.choice(odd),
    }
    ranges = (*[None] * len(odd), (0, 255), (0.0, 1.0), (1, 0), *odd)
    return json.dumps({"arguments": arguments, "image": image, "value_range": random.choice(ranges)}).encode()


def run_arguments(data: bytes, folder: Path) -> None:
    """Make the call; a partition that comes back is valid and, at a budget, of the count its size gets."""
    call = json.loads(data)
    arguments = {
        name: tuple(value) if name == "canvas" and isinstance(value, list) else value
        for name, value in call["arguments"].items()
    }
    tokenizer = Tokenizer(**arguments)
    if call["image"]["form"] == "batch":
        tokenizer.batch(_image(call["image"] | {"form": "tensor"}))
        return
    value_range = tuple(call["value_range"]) if isinstance(call["value_range"], list) else call["value_range"]
    found = tokenizer(_image(call["image"]), value_range=value_range)
    # A list of images gives a list of partitions.
    for tokens in found if isinstance(found, list) else [found]:
        tokens.validate()


def _image(image: dict[str, Any]) -> Any:
    if image["form"] == "odd":
        return image["odd"]
    if image["form"] == "pillow":
        width, height = (*image["shape"], 1)[:2]
        return Image.new(image["mode"], (min(width, 100), min(height, 100)))
    with np.errstate(all="ignore"):
        try:
            array = np.full(image["shape"], image["fill"]).astype(image["dtype"])
        except (ValueError, OverflowError):
            array = np.zeros(image["shape"])
    if image["form"] == "array":
        return array
    if array.dtype.kind not in "biufc" or array.dtype == np.uint16:
        array = np.zeros(array.shape, dtype=np.uint8)
    tensor = torch.from_numpy(array)
    if image["form"] == "sparse":
        return tensor.to_sparse()
    return tensor.to("meta") if image["form"] == "meta" else tensor
