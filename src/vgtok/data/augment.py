"""Training-time changes to an image that move its boxes and ignored regions along with its pixels.

Every transform takes a `Sample` and a generator and returns a new sample; `Augmentation` chains them and hands each
worker in each epoch a stream of its own, so that a run can be repeated and no two workers draw alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import cv2
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


class Transform(Protocol):
    """One random change."""

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """The changed sample; the given one stays as it is."""


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror left and right with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError(f"probability: {self.probability} does not lie between 0 and 1")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Mirror the sample or return it."""
        if random.random() >= self.probability:
            return sample
        width = sample.image.shape[1]
        return replace(
            sample,
            image=np.ascontiguousarray(sample.image[:, ::-1]),
            boxes=_mirrored(sample.boxes, width),
            ignored=_mirrored(sample.ignored, width),
        )


@dataclass(frozen=True)
class MultiScaleResize:
    """Resize by a factor drawn between two bounds, even on a logarithmic scale."""

    smallest: float = 0.8
    largest: float = 1.25

    def __post_init__(self) -> None:
        if not 0 < self.smallest <= self.largest:
            raise InputError(f"scales: {self.smallest} to {self.largest} is not a range of positive factors")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Resize the sample, its sides rounded to whole pixels."""
        factor = float(np.exp(random.uniform(np.log(self.smallest), np.log(self.largest))))
        height, width = sample.image.shape[:2]
        size = max(1, round(width * factor)), max(1, round(height * factor))
        interpolation = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
        # The rounded size, not the factor, is what the pixels moved by.
        ratio = np.array([size[0] / width, size[1] / height] * 2)
        return replace(
            sample,
            image=np.asarray(cv2.resize(sample.image, size, interpolation=interpolation), dtype=np.uint8),
            boxes=sample.boxes * ratio,
            ignored=sample.ignored * ratio,
        )


@dataclass(frozen=True)
class CropAroundObject:
    """Cut a window of `width` x `height`, or as much as the image has, that holds a randomly chosen object.

    Boxes are clipped to the window. One that keeps less than `visible` of its area is no longer a fair object but is
    not background either: what is left of it becomes an ignored region.
    """

    width: int
    height: int
    visible: float = 0.5

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 1:
            raise InputError(f"crop: {self.width} x {self.height} is not a size in pixels")
        if not 0 < self.visible <= 1:
            raise InputError(f"visible: {self.visible} is not a share of a box, above 0 and up to 1")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Cut the window; without objects it lies anywhere."""
        frame = np.array(sample.image.shape[1::-1])
        window = np.minimum((self.width, self.height), frame)
        low, high = np.zeros(2), (frame - window).astype(np.float64)
        if len(sample.boxes):
            box = sample.boxes[random.integers(len(sample.boxes))]
            # Whole objects fit between these corners; one larger than the window is centred as far as possible.
            first, last = np.ceil(box[2:] - window), np.floor(box[:2])
            middle = np.round((box[:2] + box[2:] - window) / 2)
            fits = first <= last
            low, high = (np.clip(np.where(fits, edge, middle), low, high) for edge in (first, last))
        x0, y0 = (int(value) for value in random.integers(low.astype(np.int64), high.astype(np.int64) + 1))
        return _cut(sample, x0, y0, int(window[0]), int(window[1]), self.visible)


@dataclass(frozen=True)
class Photometric:
    """Change brightness, contrast and saturation by factors of up to 1 +/- their strength; boxes stay."""

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.3

    def __post_init__(self) -> None:
        for name, strength in vars(self).items():
            if not 0 <= strength < 1:
                raise InputError(f"{name}: {strength} does not lie between 0 and 1")

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        """Change the pixels."""
        brightness, contrast, saturation = (1 + random.uniform(-s, s) for s in vars(self).values())
        pixels = sample.image.astype(np.float32)
        grey = pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        pixels = grey[..., None] + (pixels - grey[..., None]) * np.float32(saturation)
        pixels = grey.mean() + (pixels - grey.mean()) * np.float32(contrast)
        pixels = pixels * np.float32(brightness)
        return replace(sample, image=np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


@dataclass(frozen=True)
class Augmentation:
    """Transforms in order, and the seed all their draws follow from."""

    transforms: tuple[Transform, ...]
    seed: int = 0

    def stream(self, epoch: int, worker: int) -> Callable[[Sample], Sample]:
        """What one worker applies to its samples in one epoch: the same again for the same numbers."""
        random = np.random.default_rng((self.seed, epoch, worker))

        def apply(sample: Sample) -> Sample:
            for transform in self.transforms:
                sample = transform(sample, random)
            return sample

        return apply


def _mirrored(boxes: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


def _cut(sample: Sample, x0: int, y0: int, width: int, height: int, visible: float) -> Sample:
    boxes, shares = _clipped(sample.boxes, x0, y0, width, height)
    regions, region_shares = _clipped(sample.ignored, x0, y0, width, height)
    kept = shares >= visible
    partly = (shares > 0) & ~kept
    return Sample(
        image=np.ascontiguousarray(sample.image[y0 : y0 + height, x0 : x0 + width]),
        boxes=boxes[kept],
        labels=sample.labels[kept],
        ignored=np.concatenate([regions[region_shares > 0], boxes[partly]]),
    )


def _clipped(
    boxes: NDArray[np.float64], x0: int, y0: int, width: int, height: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Boxes in the coordinates of a window, cut at its edges, and the share (N,) of each area that is left."""
    moved = boxes - np.array([x0, y0, x0, y0])
    inside = np.clip(moved, 0, np.array([width, height, width, height]))
    before = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    after = np.prod(inside[:, 2:] - inside[:, :2], axis=1)
    shares: NDArray[np.float64] = np.zeros(len(boxes))
    np.divide(after, before, out=shares, where=before > 0)
    return inside, shares
