"""The grids of cells (16 px), nodes (32 px) and roots (64 px) over a canvas, its luma, and pyramids of values on it."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

CELL, NODE, ROOT = 16, 32, 64


@dataclass(frozen=True)
class Extent:
    """A valid area of `height` x `width` px and the grids over it.

    `data` (R, C) says which roots hold data, if not all do: the others are no part of scores, counts and budgets.
    """

    height: int
    width: int
    data: NDArray[np.bool_] | None = field(default=None, compare=False)

    def rows(self, size: int) -> int:
        """Return the rows of `size`-px patches that hold at least one valid pixel."""
        return -(-self.height // size)

    def columns(self, size: int) -> int:
        """Return the columns of `size`-px patches that hold at least one valid pixel."""
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
        """Tokens of the dense 16-px grid without padding: 100% of a budget."""
        return self.patches(CELL)

    @property
    def roots(self) -> int:
        """Tokens when nothing is split: the smallest three-level partition."""
        return self.patches(ROOT)

    def patches(self, size: int) -> int:
        """Return the number of `size`-px patches that hold at least one valid pixel."""
        if self.data is None:
            return self.rows(size) * self.columns(size)
        return int(self.valid(size).sum())

    def grid_shape(self, size: int) -> tuple[int, int]:
        """Return the shape of the grid of `size`-px patches, padded to whole roots."""
        return self.root_rows * (ROOT // size), self.root_columns * (ROOT // size)

    def valid(self, size: int) -> NDArray[np.bool_]:
        """Return which patches of the padded grid hold a valid pixel, (rows, columns) bool."""
        mask = np.zeros(self.grid_shape(size), dtype=np.bool_)
        mask[: self.rows(size), : self.columns(size)] = True
        if self.data is not None:
            per_root = ROOT // size
            mask &= np.repeat(np.repeat(self.data, per_root, axis=0), per_root, axis=1)
        return mask


@lru_cache(maxsize=32)
def z_order(root_rows: int, root_columns: int) -> NDArray[np.int64]:
    """Return flat cell indices of the padded 16-px grid, root by root in reading order, Z-order inside each root.

    This is the order of a depth-first walk of the quadtree: the cells of a leaf are contiguous.
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
    """What scorers and gates read: `rgb`, the (height, width, 3) uint8 pixels of a canvas without padding; `luma`."""

    rgb: NDArray[np.uint8]

    @cached_property
    def extent(self) -> Extent:
        """The valid area and its grids."""
        return Extent(self.rgb.shape[0], self.rgb.shape[1])

    @cached_property
    def luma(self) -> NDArray[np.uint16]:
        """(height, width) 16-bit luma, 77 R + 150 G + 29 B."""
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
"""Most pixels in a band of rows, so that its few 16-bit buffers stay in cache however large the canvas is."""


@dataclass(frozen=True)
class Band:
    """Rows processed together: `outer` includes the halo, `inner` indexes rows `start` to `stop` inside it."""

    start: int
    stop: int
    outer: slice
    inner: slice


def bands(extent: Extent, halo: int) -> Iterator[Band]:
    """Yield bands of whole 64-px roots, each with up to `halo` more rows on both sides."""
    fitting = max(1, _BAND_PIXELS // (extent.width * ROOT))
    count = -(-extent.root_rows // fitting)
    step = -(-extent.root_rows // count) * ROOT
    for start in range(0, extent.height, step):
        stop = min(start + step, extent.height)
        low, high = max(0, start - halo), min(extent.height, stop + halo)
        yield Band(start, stop, slice(low, high), slice(start - low, stop - low))


# Pyramids: one value per cell, node and root.

Grid = NDArray[np.float32]
"""(rows, columns) of values, padded to whole roots."""


class Pyramid(NamedTuple):
    """Values of a canvas: `fine` (4R, 4C) at 16 px, `middle` (2R, 2C) at 32 px, `coarse` (R, C) at 64 px."""

    fine: Grid
    middle: Grid
    coarse: Grid


def parents(grid: NDArray[Any]) -> NDArray[Any]:
    """Return the maximum of each 2 x 2 group: (2R, 2C) to (R, C)."""
    pairs = np.maximum(grid[0::2], grid[1::2])
    return np.asarray(np.maximum(pairs[:, 0::2], pairs[:, 1::2]))


def children(grid: NDArray[Any]) -> NDArray[Any]:
    """Repeat every value for its four children: (R, C) to (2R, 2C)."""
    return np.repeat(np.repeat(grid, 2, axis=0), 2, axis=1)


def nest(fine: Grid) -> Pyramid:
    """Build the pyramid in which every parent has the largest value of its children."""
    middle = parents(fine)
    return Pyramid(fine, middle, parents(middle))


def pool_cells(pixels: NDArray[Any], cell: int = CELL, reduction: np.ufunc = np.maximum) -> Grid:
    """Reduce a (height, width) map over `cell`-px squares, ragged edges included, to (rows, columns).

    The reduction is a maximum, or a sum of integers small enough to be exact in float32.
    """
    height, width = pixels.shape
    rows, columns = -(-height // cell), -(-width // cell)
    whole = height // cell * cell
    stripes = np.empty((rows, width), dtype=pixels.dtype if reduction is np.maximum else np.uint32)
    # Rows first: that reduction is contiguous in memory and leaves a sixteenth of the data for the slower one.
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
    """Compute a map band by band, without full-size intermediates, and reduce it per 16-px cell.

    `map_band` is called with the rows to read, halo included, and returns the map over them, `shrink` times smaller.
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
    """Return this thread's buffer of that name, uninitialized; it is valid until the next call with the name."""
    held: dict[str, NDArray[np.uint8]] = _buffers.__dict__
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if name not in held or held[name].size < size:
        held[name] = np.empty(size, dtype=np.uint8)
    return held[name][:size].view(dtype).reshape(shape)
