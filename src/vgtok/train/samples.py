"""Training samples: sample n follows from the recipe's seed and n alone.

So a run that was stopped resumes with the samples it would have had, on any number of processes.
"""

import pickle
from collections import abc
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from vgtok.data.dataset import Dataset
from vgtok.data.synthetic import NAMES, render_scene
from vgtok.encode.packing import Crop
from vgtok.errors import BudgetError, InputError
from vgtok.evaluate.classes import label_map
from vgtok.tokenize.canvas import Canvas, fit_canvas, read_image
from vgtok.tokenize.geometry import ROOT
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens
from vgtok.train.loaders import loader_pool, pickled_sample
from vgtok.train.recipe import Recipe
from vgtok.train.validation import scene_config


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


_VISIBLE = 0.4
"""Share of an object that a crop must show for it to be a target."""

_ON_WINDOWS = 0.25
"""Share of crops aligned to the windows of the whole canvas, including the narrow ones at its far edges."""

_GRAY = np.array([124, 116, 104], dtype=np.uint8)
"""Color that hides ignored regions, whose objects are not annotated; near the mean of natural images."""

_PREFETCHED = 4


@dataclass(frozen=True)
class TrainingSample:
    """One training image: `image` (3, H, W) uint8, its `tokens`, (N, 4) `boxes`, (N,) `labels`.

    `crop` is its place in the canvas it was cut from, `budget` the share of tokens asked for on that canvas.
    """

    number: int
    image: Tensor
    tokens: Tokens
    boxes: Tensor
    labels: Tensor
    crop: Crop
    budget: float


class TrainingSamples:
    """Samples of a recipe, by number: from the images of a data set at `indices`, or rendered if it is None."""

    def __init__(self, recipe: Recipe, names: tuple[str, ...], dataset: Dataset | None, indices: Sequence[int]) -> None:
        if dataset is not None and not indices:
            raise InputError("data: no image is left to train on")
        self.recipe, self.dataset, self.indices = recipe, dataset, indices
        self.data_labels = label_map(dataset.names, names) if dataset is not None else None
        self.scene_labels = label_map(NAMES, names)
        self.tokenizers = {budget: _tokenizers(recipe, budget) for budget in recipe.budgets}

    def __getitem__(self, number: int) -> TrainingSample:
        """Return the sample with this number."""
        random = np.random.default_rng((self.recipe.seed, 1, number))
        budget = float(random.choice(self.recipe.budgets))
        tokenizer = self._tokenizer(budget, random)
        rendered = self.dataset is None or random.random() < self.recipe.synthetic
        sample = self._rendered(random) if rendered else self._read(number)
        if self.recipe.flip:
            sample = HorizontalFlip()(sample, random)
        if rendered and self.recipe.crop:
            return self._placed(number, sample, tokenizer, budget, random)
        canvas, sample = self._fitted(sample, random)
        tokens = tokenizer.partition(canvas)
        x, y, height, width = self._window(canvas, sample, random)
        crop = Crop(x, y, canvas.height, canvas.width)
        part = tokens if (height, width) == (canvas.height, canvas.width) else tokens.crop(x, y, height, width)
        return self._to_sample(number, _cut(sample, x, y, height, width), part, crop, budget, random)

    def prefetch(self, numbers: Sequence[int], loaders: int = 0) -> abc.Generator[TrainingSample, None, None]:
        """Yield the samples with these numbers, preparing the next few in a thread or in `loaders` processes.

        Close it to end them.
        """
        ahead = max(_PREFETCHED, 2 * loaders)
        pool: Executor = loader_pool(self, loaders) if loaders else ThreadPoolExecutor(1)
        make: Any = pickled_sample if loaders else self.__getitem__
        try:
            waiting = [pool.submit(make, number) for number in numbers[:ahead]]
            for number in [*numbers[ahead:], *[None] * min(ahead, len(numbers))]:
                ready = waiting.pop(0).result()
                yield pickle.loads(ready) if loaders else ready
                if number is not None:
                    waiting.append(pool.submit(make, number))
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, number: int) -> Sample:
        """Read an image of the data set; every epoch has each image once, in a new order."""
        assert self.dataset is not None
        assert self.data_labels is not None
        epoch, place = divmod(number, len(self.indices))
        order = np.random.default_rng((self.recipe.seed, 2, epoch)).permutation(len(self.indices))
        index = self.indices[order[place]]
        annotations = self.dataset.annotations(index)
        return _known(
            read_image(self.dataset.images[index]),
            annotations.boxes,
            self.data_labels[annotations.labels],
            annotations.ignored,
        )

    def _rendered(self, random: Generator) -> Sample:
        width, height = (self.recipe.crop,) * 2 if self.recipe.crop else self.recipe.canvas
        scene = render_scene(int(random.integers(2**31)), width, height, scene_config(self.recipe))
        return _known(scene.pixels, scene.boxes, self.scene_labels[scene.labels], np.zeros((0, 4)))

    def _tokenizer(self, budget: float, random: Generator) -> Tokenizer:
        """Draw one of the tokenizers that reach a budget; with only one, draw no random number."""
        able = self.tokenizers[budget]
        return able[int(random.integers(len(able)))] if len(able) > 1 else able[0]

    def _placed(
        self, number: int, sample: Sample, tokenizer: Tokenizer, budget: float, random: Generator
    ) -> TrainingSample:
        """Return a rendered crop, placed at random in a canvas that is not rendered."""
        (width, height), side = self.recipe.canvas, self.recipe.crop
        x, y = (ROOT * int(random.integers(max(0, length - side) // ROOT + 1)) for length in (width, height))
        canvas = fit_canvas(sample.image, "native")
        tokens = tokenizer.partition(canvas)
        crop = Crop(x, y, max(height, y + side), max(width, x + side))
        return self._to_sample(number, sample, tokens, crop, budget, random)

    def _fitted(self, sample: Sample, random: Generator) -> tuple[Canvas, Sample]:
        """Return the canvas and the sample on it, with ignored regions painted over."""
        recipe = self.recipe
        factor = float(np.exp(random.uniform(np.log(recipe.scale_min), np.log(recipe.scale_max))))
        width, height = (max(ROOT, round(side * factor)) for side in recipe.canvas)
        canvas = fit_canvas(sample.image, (width, height))
        boxes, ignored = canvas.from_source(sample.boxes), canvas.from_source(sample.ignored)
        if len(ignored):
            pixels = canvas.pixels.copy()
            for x0, y0, x1, y1 in np.rint(ignored).astype(int):
                pixels[max(y0, 0) : min(y1, canvas.height), max(x0, 0) : min(x1, canvas.width)] = _GRAY
            canvas = replace(canvas, pixels=pixels)
        return canvas, Sample(canvas.image, boxes, sample.labels, ignored)

    def _window(self, canvas: Canvas, sample: Sample, random: Generator) -> tuple[int, int, int, int]:
        """Return x, y, height, width of a crop of the canvas: around an object, aligned to 64-px roots."""
        side = self.recipe.crop
        if not side:
            return 0, 0, canvas.height, canvas.width
        center = random.uniform((0, 0), (canvas.width, canvas.height))
        if len(sample.labels):
            # Draw a class first, so that rare classes are seen as often as common ones.
            label = random.choice(np.unique(sample.labels))
            box = sample.boxes[random.choice(np.flatnonzero(sample.labels == label))]
            center = (box[:2] + box[2:]) / 2
        aligned = random.random() < _ON_WINDOWS
        corner = []
        for middle, length in zip(center, (canvas.width, canvas.height), strict=True):
            middle = min(max(middle, 0.0), length - 1.0)
            edge = int(middle // side) * side
            # Skip slivers at the far edge.
            if aligned and length - edge >= side // 4:
                corner.append(edge)
                continue
            first = min(max(middle - random.uniform(0.1, 0.9) * side, 0.0), max(0.0, length - side))
            corner.append(int(np.ceil(first / ROOT)) * ROOT)
        x, y = corner
        return x, y, min(side, canvas.height - y), min(side, canvas.width - x)

    def _to_sample(
        self, number: int, sample: Sample, tokens: Tokens, crop: Crop, budget: float, random: Generator
    ) -> TrainingSample:
        """Return a cropped sample as tensors; brightness and color change last, when few pixels are left."""
        if self.recipe.photometric:
            sample = Photometric()(sample, random)
        return TrainingSample(
            number,
            torch.from_numpy(np.array(sample.image.transpose(2, 0, 1), order="C")),
            tokens,
            torch.from_numpy(sample.boxes).float(),
            torch.from_numpy(sample.labels).long(),
            crop,
            budget,
        )


def _tokenizers(recipe: Recipe, budget: float) -> list[Tokenizer]:
    """Return the tokenizers of the recipe that reach a budget; single-pass cannot go below a quarter."""
    able, refusals = [], []
    for settings in recipe.tokenizer_choices():
        try:
            if recipe.table and budget < 1.0:
                able.append(Tokenizer.calibrated(recipe.table, budget, **settings))
            else:
                able.append(Tokenizer(budget, **settings))
        except BudgetError as refusal:
            refusals.append(refusal)
    if not able:
        raise refusals[0]
    return able


def _known(image: Any, boxes: Any, labels: Any, ignored: Any) -> Sample:
    """Return a sample with the objects of known classes whose boxes have an area."""
    kept = (labels >= 0) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return Sample(image, boxes[kept].astype(np.float64), labels[kept], ignored)


def _cut(sample: Sample, x: int, y: int, height: int, width: int) -> Sample:
    """Return the part of a sample inside a window, with the objects that are visible enough."""
    moved = sample.boxes - np.array([x, y, x, y])
    inside = np.clip(moved, 0, np.array([width, height, width, height]))
    before, after = (np.prod(b[:, 2:] - b[:, :2], axis=1) for b in (moved, inside))
    kept = after >= _VISIBLE * before
    image = np.ascontiguousarray(sample.image[y : y + height, x : x + width])
    return Sample(image, inside[kept], sample.labels[kept], sample.ignored)
