"""`Slicer`: any detector at a budget. One coarse look at the whole image, a fine look at the tiles that are worth it.

A function from pixels to boxes enters; what leaves is one list of boxes in pixels of the image, with the tiles that
were read and why.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import BudgetError, InputError
from vgtok.slicing.answers import Answer, read_answer
from vgtok.slicing.guides import GUIDES, Guide, pixel_values, score_values, tile_order
from vgtok.slicing.looks import Looks
from vgtok.slicing.merge import METHODS, SAME_OBJECT, Method
from vgtok.slicing.sliced import Sliced, Spent
from vgtok.slicing.tiles import Layout, lay_out, resized
from vgtok.tokenize.canvas import ImageLike, read_image

DEFAULT_SHARE = 0.5
"""Share of the tiles that are read if no budget is given."""

COARSE_SIDE = 640
TILE_SIDE, OVERLAP = 640, 64


@dataclass(frozen=True)
class Slicer:
    """Run any detector over a large image at a budget.

    `callback` takes an (H, W, 3) uint8 RGB array and returns `supervision.Detections`, a `vgtok` result, or boxes
    (N, 4) x0 y0 x1 y1, scores (N,) and labels (N,). With `batch` above 1 it takes a list of arrays and returns a list.

    Give at most one budget per image: `budget`, the share of the tiles that are read [default: 0.5]; `megapixels`, what
    the detector reads in all; `milliseconds`, the time of the call, after which no further tile is started.

    The image is read once at `coarse` px of long side, or not at all if that is None. Tiles of at most `tile` px that
    share `overlap` px are cut from the image at `fine` px of long side [default: its own size]. `guide` orders them: by
    their 'pixels', by the 'scores' of the coarse pass, or by 'both' [default, without a coarse pass 'pixels']. `merge`
    is 'nms' or 'fusion', see `merge_boxes`.

    >>> found = Slicer(detector, budget=0.5)("photo.jpg")      # doctest: +SKIP
    >>> found.plot().save("tiles.png")                         # doctest: +SKIP
    """

    callback: Callable[[Any], Any]
    budget: float | None = None
    megapixels: float | None = None
    milliseconds: float | None = None
    guide: Guide | None = None
    coarse: int | None = COARSE_SIDE
    fine: int | None = None
    tile: int = TILE_SIDE
    overlap: int = OVERLAP
    batch: int = 1
    merge: Method = "nms"
    iou_threshold: float = SAME_OBJECT
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not callable(self.callback):
            raise InputError(f"callback: a {type(self.callback).__name__} is not a function from pixels to boxes")
        given = {name: getattr(self, name) for name in ("budget", "megapixels", "milliseconds")}
        for name, value in given.items():
            if value is not None and not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise InputError(f"{name}: {value!r} is not a number, 0 or more")
        if sum(value is not None for value in given.values()) > 1:
            raise InputError("Slicer: give one of budget= (share of tiles), megapixels= and milliseconds=")
        if self.budget is not None and self.budget > 1:
            raise BudgetError(f"budget: {self.budget} is not a share of the tiles, 0 to 1")
        if self.guide is not None and self.guide not in GUIDES:
            raise InputError(f"guide: '{self.guide}' is not one of {', '.join(GUIDES)}")
        if self.coarse is None and self.guide in ("scores", "both"):
            raise InputError(f"guide: '{self.guide}' needs a coarse pass; give coarse=640, or guide='pixels'")
        if self.merge not in METHODS:
            raise InputError(f"merge: '{self.merge}' is not one of {', '.join(METHODS)}")
        if not isinstance(self.batch, int) or self.batch < 1:
            raise InputError(f"batch: {self.batch!r} is not a number of tiles, 1 or more")
        if not 0 < self.iou_threshold <= 1:
            raise InputError(f"iou_threshold: {self.iou_threshold} is not above 0 and at most 1")
        # Sizes are checked here, not when the first image comes.
        lay_out((64, 64), self.tile, self.overlap, self.fine)
        resized(np.zeros((1, 1, 3), dtype=np.uint8), self.coarse)

    def __call__(self, image: ImageLike, *, value_range: tuple[float, float] | None = None) -> Sliced:
        """Detect in a path, bytes, PIL image, (H, W, 3) array or (3, H, W) tensor; `value_range` as in `read_image`."""
        started = time.perf_counter()
        pixels = read_image(image, value_range)
        layout = lay_out(pixels.shape[:2], self.tile, self.overlap, self.fine)
        passes = _Passes(self, Looks(layout, self.merge, self.iou_threshold))
        if self.coarse is not None:
            passes.read_coarsely(pixels)
        values = self._values(pixels, layout, passes)
        guide = self.guide or ("pixels" if self.coarse is None else "both")
        order = tile_order(values, guide)
        guided = time.perf_counter()
        frame = resized(pixels, self.fine)
        read = 0
        for tiles in self._rounds(order, layout, passes, started):
            passes.read_finely(frame, tiles)
            read += len(tiles)
        looked = time.perf_counter()
        found = passes.looks.merged()
        ended = time.perf_counter()
        return Sliced(
            boxes=found.boxes,
            scores=found.scores,
            labels=found.labels,
            class_names=passes.looks.class_names(self.names),
            layout=layout,
            order=order,
            read=read,
            guide=guide,
            values=values,
            spent=Spent(
                coarse=passes.coarse_seconds * 1e3,
                guide=(guided - started - passes.coarse_seconds) * 1e3,
                fine=(looked - guided) * 1e3,
                merge=(ended - looked) * 1e3,
                megapixels=passes.pixels / 1e6,
            ),
            image=pixels,
        )

    def _values(self, pixels: NDArray[np.uint8], layout: Layout, passes: "_Passes") -> dict[str, NDArray[np.float64]]:
        """Return what each guide that is used says of every tile."""
        values = {}
        if self.guide != "scores":
            values["pixels"] = pixel_values(pixels, layout)
        if self.coarse is not None and self.guide != "pixels":
            first = passes.looks.answers[0]
            values["scores"] = score_values(first.boxes, first.scores, layout, self.coarse / max(pixels.shape[:2]))
        return values

    def _rounds(
        self, order: NDArray[np.int64], layout: Layout, passes: "_Passes", started: float
    ) -> Iterator[NDArray[np.int64]]:
        """Yield the tiles to read next, at most `batch` of them, as long as the budget lasts."""
        if self.milliseconds is None:
            chosen = order[: self._affordable(layout, passes)]
            yield from (chosen[start : start + self.batch] for start in range(0, len(chosen), self.batch))
            return
        fine_started = time.perf_counter()
        for start in range(0, len(order), self.batch):
            now = time.perf_counter()
            if start:
                expected = (now - fine_started) / start
            else:
                # Per pixel a tile takes about what the coarse pass took; without one the first tile is read unseen.
                expected = passes.coarse_seconds * int(layout.pixels[0]) / max(passes.pixels, 1)
            tiles = order[start : start + self.batch]
            if (now - started + expected * len(tiles)) * 1e3 > self.milliseconds and (start or passes.looks.answers):
                return
            yield tiles

    def _affordable(self, layout: Layout, passes: "_Passes") -> int:
        """Return the number of tiles the budget is enough for."""
        if self.megapixels is None:
            share = DEFAULT_SHARE if self.budget is None else self.budget
            count = round(share * len(layout))
            if not count and not passes.looks.answers:
                raise BudgetError(f"budget: {share} of {len(layout)} tiles is none, and there is no coarse pass")
            return count
        left, each = self.megapixels * 1e6 - passes.pixels, int(layout.pixels[0])
        if left < (0 if passes.looks.answers else each):
            least = passes.pixels if passes.looks.answers else each
            raise BudgetError(f"megapixels: {self.megapixels} is less than the {least / 1e6:.2f} of the first pass")
        return min(len(layout), int(left // each))


class _Passes:
    """The passes of a slicer over one image, and what they took."""

    def __init__(self, slicer: Slicer, looks: Looks) -> None:
        self.slicer, self.looks = slicer, looks
        self.coarse_seconds = 0.0
        self.pixels = 0

    def read_coarsely(self, pixels: NDArray[np.uint8]) -> None:
        """Run the detector over the whole image, shrunk or enlarged to the coarse size."""
        started = time.perf_counter()
        small = resized(pixels, self.slicer.coarse)
        self.looks.add_coarse(self._answers([small])[0], small.shape[:2])
        self.coarse_seconds = time.perf_counter() - started

    def read_finely(self, frame: NDArray[np.uint8], tiles: NDArray[np.int64]) -> None:
        """Run the detector over tiles of the resized frame."""
        numbers = tiles.tolist()
        answers = self._answers([self.looks.layout.cut(frame, tile) for tile in numbers])
        for tile, answer in zip(numbers, answers, strict=True):
            self.looks.add_fine(answer, tile)

    def _answers(self, images: list[NDArray[np.uint8]]) -> list[Answer]:
        self.pixels += sum(image.shape[0] * image.shape[1] for image in images)
        if self.slicer.batch == 1:
            return [read_answer(self.slicer.callback(image), image.shape[:2]) for image in images]
        answers = self.slicer.callback(images)
        if not isinstance(answers, list | tuple) or len(answers) != len(images):
            raise InputError(f"callback: with batch above 1 it must return a list of {len(images)} answers")
        return [read_answer(answer, image.shape[:2]) for answer, image in zip(answers, images, strict=True)]
