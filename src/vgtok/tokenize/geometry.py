"""The grid of cells, nodes and roots over a canvas, and pyramids of values on it."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

CELL, NODE, ROOT = 16, 32, 64


@dataclass(frozen=True)
class Extent:
    """A valid area of `height` x `width` px and the grids over it."""

    height: int
    width: int

    def rows(self, size: int) -> int:
        """Rows of `size`-px patches that hold at least one real pixel."""
        return -(-self.height // size)

    def columns(self, size: int) -> int:
        """Columns of `size`-px patches that hold at least one real pixel."""
        return -(-self.width // size)

    @property
    def root_rows(self) -> int:
        """Rows of 64-px roots."""
        return self.rows(ROOT)

    @property
    def root_columns(self) -> int:
        """Columns of 64-px roots."""
        return self.columns(ROOT)

    @property
    def dense(self) -> int:
        """Tokens of the dense 16-px grid, padding left out: what a budget is a fraction of."""
        return self.rows(CELL) * self.columns(CELL)

    @property
    def roots(self) -> int:
        """Tokens when nothing is split: the least a three-level partition can hold."""
        return self.root_rows * self.root_columns

    def grid_shape(self, size: int) -> tuple[int, int]:
        """Shape of the padded grid of `size`-px patches: whole roots."""
        return self.root_rows * (ROOT // size), self.root_columns * (ROOT // size)

    def valid(self, size: int) -> NDArray[np.bool_]:
        """Which patches of the padded grid hold a real pixel, (rows, columns) bool."""
        mask = np.zeros(self.grid_shape(size), dtype=np.bool_)
        mask[: self.rows(size), : self.columns(size)] = True
        return mask


@lru_cache(maxsize=32)
def z_order(root_rows: int, root_columns: int) -> NDArray[np.int64]:
    """Flat cell indices of the padded 16-px grid, root by root in reading order, Z-order inside each root.

    A quadtree walked depth first emits its leaves in this order, so a leaf's cells are one contiguous run.
    """
    cells = np.arange(root_rows * root_columns * 16).reshape(root_rows, 2, 2, root_columns, 2, 2)
    # (root row, row of node, row of cell, root column, column of node, column of cell)
    order = cells.transpose(0, 3, 1, 4, 2, 5).reshape(-1)
    order.setflags(write=False)
    return order


# The pixels of a canvas and their luma, computed band by band.

LUMA_WEIGHTS = (77, 150, 29)


@dataclass(frozen=True)
class CanvasPixels:
    """`image` is (height, width, 3) uint8 RGB: the valid part of a canvas, without padding."""

    rgb: NDArray[np.uint8]

    @cached_property
    def extent(self) -> Extent:
        """The valid area and its grids."""
        return Extent(self.rgb.shape[0], self.rgb.shape[1])

    @cached_property
    def luma(self) -> NDArray[np.uint16]:
        """(height, width) luma times 256."""
        total = np.empty(self.rgb.shape[:2], dtype=np.uint16)
        for band in bands(self.extent, halo=0):
            part = total[band.outer]
            planes = cv2.split(self.rgb[band.outer], [scratch(f"plane {i}", part.shape, np.uint8) for i in range(3)])
            weighted = scratch("weighted plane", part.shape, np.uint16)
            np.multiply(planes[0], LUMA_WEIGHTS[0], out=part, dtype=np.uint16)
            for plane, weight in zip(planes[1:], LUMA_WEIGHTS[1:], strict=True):
                part += np.multiply(plane, weight, out=weighted, dtype=np.uint16)
        return total


_BAND_PIXELS = 2**20
"""Pixels a band of rows holds at most: its few 16-bit buffers stay in cache, and huge frames in memory."""


@dataclass(frozen=True)
class Band:
    """Rows of a frame processed together: `outer` includes the halo, `inner` indexes the result inside it."""

    start: int
    stop: int
    outer: slice
    inner: slice


def bands(extent: Extent, halo: int) -> Iterator[Band]:
    """Cut a frame into bands of whole 64-px roots, each with `halo` more rows where the frame has them."""
    fitting = max(1, _BAND_PIXELS // (extent.width * ROOT))
    count = -(-extent.root_rows // fitting)
    step = -(-extent.root_rows // count) * ROOT
    for start in range(0, extent.height, step):
        stop = min(start + step, extent.height)
        low, high = max(0, start - halo), min(extent.height, stop + halo)
        yield Band(start, stop, slice(low, high), slice(start - low, stop - low))


# Pyramids: one value per cell, node and root.

Grid = NDArray[np.float32]
"""(rows, columns) of node values, padded to whole roots."""


class Pyramid(NamedTuple):
    """Node values: `fine` (4R, 4C) at 16 px, `middle` (2R, 2C) at 32 px, `coarse` (R, C) at 64 px."""

    fine: Grid
    middle: Grid
    coarse: Grid


def parents(grid: NDArray[Any]) -> NDArray[Any]:
    """Maximum over each 2 x 2 group: (2R, 2C) to (R, C)."""
    pairs = np.maximum(grid[0::2], grid[1::2])
    return np.asarray(np.maximum(pairs[:, 0::2], pairs[:, 1::2]))


def children(grid: NDArray[Any]) -> NDArray[Any]:
    """Give every value to its four children: (R, C) to (2R, 2C)."""
    return np.repeat(np.repeat(grid, 2, axis=0), 2, axis=1)


def nest(fine: Grid) -> Pyramid:
    """The pyramid in which every node takes the largest value it contains, so s(v) = max of its children."""
    middle = parents(fine)
    return Pyramid(fine, middle, parents(middle))


def pool_cells(pixels: NDArray[Any], cell: int = CELL, reduction: np.ufunc = np.maximum) -> Grid:
    """A (height, width) map reduced over `cell`-px squares, ragged edges included: (rows, columns).

    The reduction is a maximum, or a sum of integers small enough to be exact in the result.
    """
    height, width = pixels.shape
    rows, columns = -(-height // cell), -(-width // cell)
    whole = height // cell * cell
    stripes = np.empty((rows, width), dtype=pixels.dtype if reduction is np.maximum else np.uint32)
    # Rows first: that reduction runs along memory, and leaves a sixteenth of the data for the slow one.
    reduction.reduce(pixels[:whole].reshape(-1, cell, width), axis=1, out=stripes[: whole // cell])
    if whole < height:
        reduction.reduce(pixels[whole:], axis=0, out=stripes[-1])
    aligned = width // cell * cell
    pooled = np.empty((rows, columns), dtype=np.float32)
    pooled[:, : width // cell] = reduction.reduce(stripes[:, :aligned].reshape(rows, -1, cell), axis=2)
    if aligned < width:
        pooled[:, -1] = reduction.reduce(stripes[:, aligned:], axis=1)
    return pooled


def pool_bands(
    extent: Extent,
    halo: int,
    map_band: Callable[[slice], NDArray[Any]],
    shrink: int = 1,
    reduction: np.ufunc = np.maximum,
) -> Grid:
    """A map computed band by band, so that no full-size intermediate exists, reduced per 16-px cell.

    `map_band` gets the rows to read, halo included, and returns the map over them, `shrink` times smaller.
    """
    fine = np.zeros(extent.grid_shape(CELL), dtype=np.float32)
    for band in bands(extent, halo):
        values = map_band(band.outer)
        first = band.inner.start // shrink
        rows = -(-(band.stop - band.start) // shrink)
        pooled = pool_cells(values[first : first + rows], CELL // shrink, reduction)
        top = band.start // CELL
        fine[top : top + pooled.shape[0], : pooled.shape[1]] = pooled
    return fine


# Buffers that calls of one thread share.

_buffers = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """This thread's buffer of that name as an array of undefined content; valid until the name is asked for again."""
    held: dict[str, NDArray[np.uint8]] = _buffers.__dict__
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if name not in held or held[name].size < size:
        held[name] = np.empty(size, dtype=np.uint8)
    return held[name][:size].view(dtype).reshape(shape)
