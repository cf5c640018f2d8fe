"""A budget over a stream: the mean over a folder or a video is held, busy images get more and calm ones less.

Images enter one after another, the share of tokens of each leaves before it is read. There is no second pass: all
recent images share one threshold on their compact scores, which moves so that their mean share is the target. That
score is divided by the clutter around, so it means the same in sun and shade; contrast alone does not.
"""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.canvas import Canvas, ImageLike
from vgtok.tokenize.count import split_thresholds, target_count
from vgtok.tokenize.geometry import CanvasPixels, Extent
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

_STEPS = 128
"""Shares between the bounds at which the thresholds of an image are kept."""

_WINDOW = 256
"""Images whose thresholds are remembered."""

_REPAID_IN = 3
"""Images over which a surplus or a debt is paid back."""

HELD_WITHIN, HELD_AFTER = 0.002, 50
"""The mean share never differs by more than this from the target, once so many images were read."""


class StreamBudget:
    """Choose the share of tokens of each image of a stream so that their mean is `budget`.

    Every share lies within `bounds` (lowest, highest) [default: half and one and a half times the budget]. After 50
    images the mean over all of them is within 0.2 points of the budget, and stays there. `tokenizer` is how images are
    read; its own budget does not matter.

    >>> stream = StreamBudget(0.4)                                  # doctest: +SKIP
    >>> for frame in frames:                                        # doctest: +SKIP
    ...     result = detector(frame, budget=stream.share(frame))
    """

    def __init__(
        self, budget: float, *, bounds: tuple[float, float] | None = None, tokenizer: Tokenizer | None = None
    ) -> None:
        self.tokenizer = Tokenizer(budget=budget) if tokenizer is None else tokenizer
        if self.tokenizer.splitter != "quadtree":
            raise InputError("tokenizer: a budget over a stream needs splitter='quadtree'")
        # Refuses a budget that no image can have.
        self.budget = float(Tokenizer(budget=budget).budget or 0.0)
        least = 1 / 16
        low, high = (max(least, budget / 2), min(1.0, 1.5 * budget)) if bounds is None else bounds
        if not least <= low <= budget <= high <= 1.0:
            raise BudgetError(f"bounds: ({low}, {high}) are not {least:g} to {budget} and {budget} to 1")
        self.bounds = (float(low), float(high))
        self.count = 0
        self.retained = 0.0
        self._recent: deque[NDArray[np.float32]] = deque(maxlen=_WINDOW)

    @property
    def mean(self) -> float | None:
        """Mean share of the images so far; None before the first."""
        return self.retained / self.count if self.count else None

    def book(self, retained: float) -> None:
        """Count an image that an earlier run read at that share, so that a resumed stream keeps its mean."""
        self.count += 1
        self.retained += retained

    def share(self, image: ImageLike) -> float:
        """Return the share of the next image, anything the tokenizer reads, and count it."""
        return self._share(self.tokenizer.to_canvas(image))

    def __call__(self, image: ImageLike) -> Tokens:
        """Tokenize the next image."""
        canvas = self.tokenizer.to_canvas(image)
        return replace(self.tokenizer, budget=self._share(canvas), percentile=None).partition(canvas)

    def decide(self, demand: NDArray[np.float32], extent: Extent) -> float:
        """Return the share of the next image, given its `demand` within the bounds and its size, and count it."""
        low, high = self.bounds
        self._recent.append(demand)
        surplus = self.retained - self.budget * self.count
        aim = min(max(self.budget - surplus / _REPAID_IN, low), high)
        wanted = low + (high - low) * float((demand >= self._threshold(aim)).mean())
        # A stream may turn busy or calm for good: the allowance bounds how far the mean follows.
        allowed = HELD_WITHIN * max(self.count + 1, HELD_AFTER)
        wanted = min(max(wanted, self.budget - surplus - allowed), self.budget - surplus + allowed)
        # The nearest count a partition can have must not lie beyond the bounds.
        margin = min(2 / extent.dense, (high - low) / 2)
        share = target_count(min(max(wanted, low + margin), high - margin), extent, levels=3) / extent.dense
        self.book(share)
        return share

    def _share(self, canvas: Canvas) -> float:
        pixels = CanvasPixels(canvas.image)
        return self.decide(demand(pixels, self.bounds), pixels.extent)

    def _threshold(self, aim: float) -> float:
        """Return the score at which the recent images have a mean share of `aim`."""
        low, high = self.bounds
        pooled = np.concatenate(self._recent)
        above = round((aim - low) / max(high - low, 1e-12) * len(pooled))
        if not above:
            return float("inf")
        return float(np.partition(pooled, len(pooled) - above)[len(pooled) - above])


def demand(pixels: CanvasPixels, bounds: tuple[float, float]) -> NDArray[np.float32]:
    """Return the compact scores down to which an image splits to have each of evenly spaced shares within bounds."""
    return split_thresholds(SCORES["compact"](pixels), pixels.extent, np.linspace(*bounds, _STEPS + 1)[1:])
