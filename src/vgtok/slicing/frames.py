"""Partition a frame of any size in constant memory: parts of it enter one after another, one partition leaves.

Scores of a part depend on few pixels around it, so they equal those of the whole frame, and the budget is spent over
all roots of the frame at once: the partition is the one `Tokenizer` gives at the frame's own size, bit for bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, Extent, Grid, Pyramid, pool_cells
from vgtok.tokenize.split import Nodes, Structure
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

Region = tuple[NDArray[np.uint8], NDArray[np.bool_] | None]
"""(H, W, 3) RGB pixels, and (H, W) which of them hold data, None if all do; those without are black."""


class Frame(Protocol):
    """A frame that is read in parts, of `height` x `width` px."""

    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102

    def read(self, x: int, y: int, height: int, width: int) -> Region:
        """Return the pixels of a part with its corner at (x, y)."""

    def picture(self) -> NDArray[np.uint8]:
        """Return the whole frame as (h, w, 3) pixels to draw on, reduced if it is too large for that."""


@dataclass(frozen=True, eq=False)
class ArrayFrame:
    """A frame in memory: `pixels` (H, W, 3) uint8 RGB; `data` (H, W) says which hold data, None if all do."""

    pixels: NDArray[np.uint8]
    data: NDArray[np.bool_] | None = None

    @property
    def height(self) -> int:
        """Pixels down."""
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        """Pixels across."""
        return int(self.pixels.shape[1])

    def read(self, x: int, y: int, height: int, width: int) -> Region:
        """Return views of a part."""
        place = slice(y, y + height), slice(x, x + width)
        return self.pixels[place], None if self.data is None else self.data[place]

    def picture(self) -> NDArray[np.uint8]:
        """Return the pixels."""
        return self.pixels


FLAT = 12 * 256
"""Luma range below which a root is flat: 12 of the 255 levels, what noise and compression leave on even ground."""

_PART = 2048
"""Side of the parts whose scores are computed at a time."""

_HALO = 2 * ROOT
"""Pixels around a part that its scores may depend on: the most any score or gate by name looks at is 88."""


@dataclass(frozen=True, eq=False)
class FramePartition:
    """The splits of a whole frame and its `flat` roots, (R, C); `source_size` is its (height, width) before fitting."""

    splits: Nodes
    extent: Extent
    flat: NDArray[np.bool_]
    source_size: tuple[int, int]

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of the frame; roots without data have none."""
        return tokens_from_splits(self.splits, self.extent, self.source_size)

    def part(self, x: int, y: int, height: int, width: int) -> Tokens:
        """Return the tokens of a part with its corner on a root, as an image of its own.

        A model needs a token everywhere: roots without data are one token of 64 px there.
        """
        down, across = slice(y // ROOT, -(-(y + height) // ROOT)), slice(x // ROOT, -(-(x + width) // ROOT))
        middle = self.splits.middle[2 * down.start : 2 * down.stop, 2 * across.start : 2 * across.stop]
        splits = Nodes(middle, self.splits.coarse[down, across])
        return tokens_from_splits(splits, Extent(height, width), (height, width))

    def whole(self) -> Tokens:
        """Return the tokens of the whole frame with one in every root without data, as a model needs them."""
        return tokens_from_splits(self.splits, Extent(self.extent.height, self.extent.width), self.source_size)

    def shows_something(self, x0: int, y0: int, x1: int, y1: int) -> bool:
        """Whether a root that meets the area is split and not flat; elsewhere there is nothing to find."""
        down, across = slice(y0 // ROOT, -(-y1 // ROOT)), slice(x0 // ROOT, -(-x1 // ROOT))
        return bool((self.splits.coarse[down, across] & ~self.flat[down, across]).any())


def partition_frame(frame: Frame, tokenizer: Tokenizer) -> FramePartition:
    """Partition a frame at its own size; the canvas of the tokenizer is not used.

    A scorer or gate of your own is called on parts of the frame, each with 128 px around it.
    """
    if tokenizer.scorer == "fused":
        raise InputError("scorer: 'fused' compares with the whole image, so a frame cannot be read in parts with it")
    extent = Extent(frame.height, frame.width)
    scores = Pyramid(*(np.zeros(extent.grid_shape(size), dtype=np.float32) for size in (CELL, NODE, ROOT)))
    statistic = Structure(*(np.zeros(extent.grid_shape(size), dtype=np.float32) for size in (NODE, ROOT)))
    flat = np.ones(extent.grid_shape(ROOT), dtype=np.bool_)
    data = np.zeros(extent.grid_shape(ROOT), dtype=np.bool_)
    for part in _parts(extent):
        pixels, valid = frame.read(part.x, part.y, part.height, part.width)
        if valid is not None and not valid.any():
            continue
        seen = CanvasPixels(pixels if valid is None else _filled(pixels, valid))
        part.keep(data, np.ones(1) if valid is None else pool_cells(valid.astype(np.uint8), ROOT), ROOT)
        part.keep(flat, _ranges(seen.luma) < FLAT, ROOT)
        for size, whole, own in zip((CELL, NODE, ROOT), scores, tokenizer.score(seen), strict=True):
            part.keep(whole, own, size)
        structure = tokenizer.structure(seen)
        for size, whole, own in zip((NODE, ROOT), statistic, structure or (), strict=False):
            part.keep(whole, own, size)
    if not data.any():
        raise InputError("every pixel is nodata; there is nothing to read")
    extent = Extent(frame.height, frame.width, None if data.all() else data)
    splits = tokenizer.split(scores, statistic if tokenizer.gated else None, extent)
    return FramePartition(splits, extent, flat, (frame.height, frame.width))


def fit_frame(frame: Frame, tokenizer: Tokenizer) -> tuple[Canvas, FramePartition]:
    """Read a frame as a whole, fit it to the canvas of the tokenizer and partition that."""
    pixels, data = frame.read(0, 0, frame.height, frame.width)
    canvas = fit_canvas(pixels, tokenizer.canvas)
    if data is not None:
        size = (canvas.width, canvas.height)
        data = cv2.resize(data.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST).astype(np.bool_)
    partition = partition_frame(ArrayFrame(canvas.image, data), tokenizer)
    return canvas, replace(partition, source_size=(frame.height, frame.width))


@dataclass(frozen=True)
class _Part:
    """A part of a frame to read, and of it the roots from (`top`, `left`) whose values are kept, counted in the frame.

    `rows` x `columns` roots are kept; the rest is around them.
    """

    x: int
    y: int
    height: int
    width: int
    top: int
    left: int
    rows: int
    columns: int

    def keep(self, whole: NDArray[np.generic], own: NDArray[np.generic], size: int) -> None:
        """Copy the grid of the part, of `size`-px patches, to its place in that of the frame."""
        per_root = ROOT // size
        top, left = self.top * per_root, self.left * per_root
        rows, columns = self.rows * per_root, self.columns * per_root
        if own.size > 1:
            first, second = top - self.y // size, left - self.x // size
            own = own[first : first + rows, second : second + columns]
        whole[top : top + rows, left : left + columns] = own


def _parts(extent: Extent) -> Iterator[_Part]:
    step = _PART // ROOT
    for top in range(0, extent.root_rows, step):
        for left in range(0, extent.root_columns, step):
            rows, columns = min(step, extent.root_rows - top), min(step, extent.root_columns - left)
            x, y = max(0, left * ROOT - _HALO), max(0, top * ROOT - _HALO)
            right = min(extent.width, (left + columns) * ROOT + _HALO)
            bottom = min(extent.height, (top + rows) * ROOT + _HALO)
            yield _Part(x, y, bottom - y, right - x, top, left, rows, columns)


def _filled(pixels: NDArray[np.uint8], valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Give every pixel without data the color of the nearest one with data, so that its edge shows no contrast."""
    if valid.all():
        return pixels
    _, labels = cv2.distanceTransformWithLabels(
        (~valid).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
    )
    nearest = np.zeros(int(labels.max()) + 1, dtype=np.int64)
    nearest[labels[valid]] = np.flatnonzero(valid)
    return np.ascontiguousarray(pixels.reshape(-1, 3)[nearest[labels]])


def _ranges(luma: NDArray[np.uint16]) -> Grid:
    """Return the largest minus the smallest luma of each root, (R, C)."""
    white = np.uint16(np.iinfo(np.uint16).max)
    return pool_cells(luma, ROOT) - (np.float32(white) - pool_cells(white - luma, ROOT))
