"""The preprocessing of a host, read from the file of its image processor and done without torchvision.

An (H, W, 3) image enters; the normalized input of the model leaves, with the part of it that the image fills.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vgtok.errors import InputError
from vgtok.hosts.adapters import Normalization

_FILES = ("preprocessor_config.json", "processor_config.json")

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class ModelInput:
    """`pixel_values` (3, h, w); the image fills the top-left `height` x `width` of it, the rest is padding."""

    pixel_values: Tensor
    height: float
    width: float


@dataclass(frozen=True)
class Preprocessing:
    """How a model wants its images.

    `size` holds height and width, or shortest_edge and longest_edge; sides are rounded down to whole `multiple`.
    `squared` pads the image with black, below and right, to a square before it is resized.
    """

    size: Mapping[str, int]
    resample: int = Image.Resampling.BILINEAR
    factor: float = 1 / 255
    normalization: Normalization | None = None
    multiple: int = 1
    squared: bool = False

    def __call__(self, image: Pixels) -> ModelInput:
        """Resize, scale and normalize an (H, W, 3) image."""
        height, width = image.shape[:2]
        target = _target(self.size, (height, width), self.multiple)
        filled = (float(target[0]), float(target[1]))
        if self.squared:
            side = max(height, width)
            scaled = _smoothly_resized(image.astype(np.float32) * self.factor, side, target)
            filled = (target[0] * height / side, target[1] * width / side)
        else:
            resized = Image.fromarray(image).resize(target[::-1], Image.Resampling(self.resample))
            scaled = np.asarray(resized, dtype=np.float32) * np.float32(self.factor)
        if self.normalization is not None:
            mean, std = (np.array(values, dtype=np.float32) for values in self.normalization)
            scaled = (scaled - mean) / std
        pixel_values = torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32))
        return ModelInput(pixel_values, *filled)


def read_preprocessing(
    folder: Path, usual: Normalization, *, multiple: int = 1, squares: bool = False
) -> Preprocessing:
    """Read the file of the image processor in the folder of a model; `usual` is the family's mean and deviation."""
    settings, path = _settings(folder)
    size = settings.get("size")
    if isinstance(size, int):
        size = {"shortest_edge": size, "longest_edge": settings.get("max_size", 1333)}
    if not isinstance(size, Mapping) or not _known_size(size):
        raise InputError(f"{path}: size {size!r} is neither height and width nor shortest_edge and longest_edge")
    for name in ("do_center_crop", "pad_size"):
        if settings.get(name):
            raise InputError(f"{path}: {name} is not available; set it to false")
    if settings.get("do_resize") is False:
        raise InputError(f"{path}: do_resize is false, but the model needs images of one size; set it to true")
    mean, std = settings.get("image_mean") or usual[0], settings.get("image_std") or usual[1]
    normalized = settings.get("do_normalize", True) is not False
    return Preprocessing(
        size={name: int(value) for name, value in size.items() if value is not None},
        resample=int(settings.get("resample") or Image.Resampling.BILINEAR),
        factor=float(settings.get("rescale_factor") or 1 / 255) if settings.get("do_rescale", True) else 1.0,
        normalization=(tuple(map(float, mean)), tuple(map(float, std))) if normalized else None,
        multiple=multiple,
        squared=squares and settings.get("do_pad", True) is not False,
    )


def _settings(folder: Path) -> tuple[Mapping[str, Any], Path]:
    for name in _FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{path}: is not a JSON file; save the processor of the model again") from None
        settings = settings.get("image_processor", settings) if isinstance(settings, Mapping) else settings
        if isinstance(settings, Mapping):
            return settings, path
    raise InputError(
        f"{folder}: has no {_FILES[0]}, which says how images are resized and normalized; copy the one of the model's "
        "page, or save the model's processor here"
    )


def _known_size(size: Mapping[str, Any]) -> bool:
    sides = {name: value for name, value in size.items() if value is not None}
    whole = all(
        isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**15 for value in sides.values()
    )
    return whole and set(sides) in ({"height", "width"}, {"shortest_edge", "longest_edge"}, {"shortest_edge"})


def _target(size: Mapping[str, int], source: tuple[int, int], multiple: int) -> tuple[int, int]:
    """Return the height and width an image of a source size is resized to."""
    if "height" in size:
        return size["height"], size["width"]
    height, width = source
    short, long = min(source), max(source)
    side = float(size["shortest_edge"])
    if long / short * side > size.get("longest_edge", np.inf):
        side = size["longest_edge"] * short / long
    # The short side is rounded, the long one cut off.
    rounded, other = round(side), int(side * long / short)
    target = (rounded, other) if height <= width else (other, rounded)
    if short == rounded:
        target = source
    return max(target[0] // multiple, 1) * multiple, max(target[1] // multiple, 1) * multiple


def _smoothly_resized(image: NDArray[np.float32], side: int, target: tuple[int, int]) -> NDArray[np.float32]:
    """Pad an (H, W, 3) image to a square and resize it by Gaussian smoothing and linear interpolation."""
    from scipy import ndimage

    height, width = image.shape[:2]
    square = np.pad(image, ((0, side - height), (0, side - width), (0, 0)))
    sigma = [max(0.0, (side / length - 1) / 2) for length in target]
    smooth = ndimage.gaussian_filter(square, (*sigma, 0.0), mode="mirror")
    zoom = (target[0] / side, target[1] / side, 1.0)
    resized = ndimage.zoom(smooth, zoom, order=1, mode="mirror", grid_mode=True)
    return np.asarray(np.clip(resized, square.min(), square.max()), dtype=np.float32)
