"""Random changes of a training image: a mirror that moves the boxes along, and changes of color.

Each takes a `Sample` and a generator and returns a new sample; the given one is not changed.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from vgtok.errors import InputError


@dataclass(frozen=True)
class Sample:
    """`image` (H, W, 3) uint8 RGB, `boxes` (N, 4) and `ignored` (M, 4) float64 x0 y0 x1 y1, `labels` (N,)."""

    image: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    ignored: NDArray[np.float64]


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror left and right with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError(f"probability: {self.probability} does not lie between 0 and 1")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Return the mirrored sample, or the sample itself."""
        if random.random() >= self.probability:
            return sample
        width = sample.image.shape[1]
        return replace(
            sample,
            image=np.ascontiguousarray(sample.image[:, ::-1]),
            boxes=_mirror(sample.boxes, width),
            ignored=_mirror(sample.ignored, width),
        )


@dataclass(frozen=True)
class Photometric:
    """Change brightness, contrast and saturation by factors of up to 1 +/- their strength."""

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.3

    def __post_init__(self) -> None:
        for name, strength in vars(self).items():
            if not 0 <= strength < 1:
                raise InputError(f"{name}: {strength} does not lie between 0 and 1")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Return the sample with changed pixels."""
        brightness, contrast, saturation = (1 + random.uniform(-s, s) for s in vars(self).values())
        pixels = sample.image.astype(np.float32)
        gray = pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        pixels = gray[..., None] + (pixels - gray[..., None]) * np.float32(saturation)
        pixels = gray.mean() + (pixels - gray.mean()) * np.float32(contrast)
        pixels = pixels * np.float32(brightness)
        return replace(sample, image=np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def _mirror(boxes: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)
