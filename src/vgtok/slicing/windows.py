"""Overlapping windows over a frame at its own resolution, and the boxes found in them as one list without doubles.

A frame larger than a canvas is read window after window. Where windows overlap, a box counts in the window whose own
half its center lies in; boxes that both halves claim are merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.slicing.merge import Merged, cut_by_tile, merge_boxes
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.geometry import ROOT

LARGEST_WHOLE = 4096
"""Longest side in pixels of a frame that is fitted to a canvas; larger ones are read by windows."""

_OVERLAP = 2 * ROOT
SHARED = 8.0
"""Pixels around the line between two windows where a box may count in both, as their estimates of it differ."""


@dataclass(frozen=True)
class Windows:
    """Read a frame at its own resolution in windows of `width` x `height` px that overlap; all multiples of 64."""

    width: int = DEFAULT_CANVAS[0]
    height: int = DEFAULT_CANVAS[1]
    overlap: int = _OVERLAP

    def __post_init__(self) -> None:
        for name in ("width", "height", "overlap"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value <= 0 or value % ROOT:
                raise InputError(f"windows: {name} {value!r} is not a multiple of {ROOT} px")
        if self.overlap > min(self.width, self.height) // 2:
            raise InputError(
                f"windows: an overlap of {self.overlap} px is more than half of {self.width} x {self.height}; windows "
                f"need sides of at least {2 * self.overlap} px"
            )

    @classmethod
    def like(cls, canvas: CanvasSize) -> "Windows":
        """Return the largest windows not above a canvas size; the default ones for 'native'."""
        if isinstance(canvas, str):
            return cls()
        long_side, short_side = (max(2 * _OVERLAP, side // ROOT * ROOT) for side in (max(canvas), min(canvas)))
        return cls(long_side, short_side)

    def over(self, height: int, width: int) -> list["Window"]:
        """Return the windows over a frame of that size, row by row."""
        return [
            Window(left, top, bottom - top, right - left, (x0, y0, x1, y1), (u0, v0, u1, v1))
            for top, bottom, y0, y1, v0, v1 in _spans(height, self.height, self.overlap)
            for left, right, x0, x1, u0, u1 in _spans(width, self.width, self.overlap)
        ]


CanvasChoice = CanvasSize | Windows | Literal["windows"]
"""How an image is read: fitted to a size, at its own size as a whole ('native'), or at its own size by windows."""


def windows_for(
    choice: CanvasChoice | None, canvas: CanvasSize, shape: Sequence[int], windows_over: int = LARGEST_WHOLE
) -> Windows | None:
    """Return the windows to read an image of shape (height, width, ...) by; None to fit it to a canvas.

    `canvas` is the model's own. Without a choice, images with a side above `windows_over` are read by windows.
    """
    if isinstance(choice, Windows):
        return choice
    large = choice is None and max(shape[:2]) > windows_over
    return Windows.like(canvas) if large or choice == "windows" else None


def fitted_canvas(choice: CanvasChoice | None, canvas: CanvasSize) -> CanvasSize:
    """Return the canvas for images that are not read by windows: the one chosen, or `canvas`, the model's own."""
    return canvas if choice is None or isinstance(choice, Windows) or choice == "windows" else choice


@dataclass(frozen=True)
class Window:
    """A window of `width` x `height` px with its corner at (x, y) of the frame.

    `core` x0 y0 x1 y1 is the part in which boxes count in this window; `alone` the part that no other window sees.
    """

    x: int
    y: int
    height: int
    width: int
    core: tuple[int, int, int, int]
    alone: tuple[int, int, int, int]

    def owned(self, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which (N, 4) boxes in frame pixels count in this window."""
        x, y = (boxes[:, :2] + boxes[:, 2:]).T / 2
        x0, y0, x1, y1 = self.core
        return np.asarray((x >= x0 - SHARED) & (x < x1 + SHARED) & (y >= y0 - SHARED) & (y < y1 + SHARED))

    def alone_in(self, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which (N, 4) boxes lie where no other window looks."""
        low, high = np.array(self.alone[:2]), np.array(self.alone[2:])
        return np.asarray((boxes[:, :2] >= low).all(axis=1) & (boxes[:, 2:] <= high).all(axis=1))


@dataclass(frozen=True, eq=False)
class WindowFound:
    """What one window shows: boxes (K, 4) x0 y0 x1 y1 in frame pixels, scores (K,), labels (K,); ms of its parts."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    encoder: float
    head: float


def merged_windows(windows: Sequence[Window], found: Mapping[int, WindowFound], frame_size: tuple[int, int]) -> Merged:
    """Merge what the windows of a frame of (height, width) show, by their numbers, into one list, best score first."""
    boxes, scores, labels, source, cut, alone = [], [], [], [], [], []
    for number, one in sorted(found.items()):
        window = windows[number]
        owned = window.owned(one.boxes)
        own = one.boxes[owned]
        boxes.append(own)
        scores.append(one.scores[owned])
        labels.append(one.labels[owned])
        source.append(np.full(len(own), number))
        tile = (window.x, window.y, window.x + window.width, window.y + window.height)
        cut.append(cut_by_tile(own, tile, frame_size))
        alone.append(window.alone_in(own))
    if not boxes:
        none = np.zeros(0, dtype=np.int64)
        return Merged(np.zeros((0, 4)), np.zeros(0), none, none)
    places, values, classes = np.concatenate(boxes), np.concatenate(scores), np.concatenate(labels)
    # Only boxes in an overlap can be doubles; most are not, and comparing all with all would take long.
    shared = np.flatnonzero(~np.concatenate(alone))
    merged = merge_boxes(
        places[shared], values[shared], classes[shared], np.concatenate(source)[shared], np.concatenate(cut)[shared]
    )
    kept = np.concatenate([np.flatnonzero(np.concatenate(alone)), shared[merged.index]])
    kept = kept[np.argsort(-values[kept], kind="stable")]
    return Merged(places[kept], values[kept].astype(np.float64), classes[kept], kept)


def _spans(length: int, side: int, overlap: int) -> list[tuple[int, int, int, int, int, int]]:
    """Return (start, stop, core start, core stop, alone start, alone stop) of the windows along one side."""
    if length <= side:
        return [(0, length, 0, length, 0, length)]
    # The last window ends with the frame; its start stays on a root, so it may be a little smaller.
    last = -(-(length - side) // ROOT) * ROOT
    starts = [*range(0, last, side - overlap), last]
    stops = [*(start + side for start in starts[:-1]), length]
    # The line between two windows lies in the middle of their overlap.
    lines = [0, *((stop + start) // 2 for stop, start in zip(stops[:-1], starts[1:], strict=True)), length]
    spans = []
    for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        alone = (stops[number - 1] if number else 0, starts[number + 1] if number + 1 < len(starts) else length)
        spans.append((start, stop, lines[number], lines[number + 1], *alone))
    return spans
