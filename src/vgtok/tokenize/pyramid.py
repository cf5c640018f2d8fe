"""A map over pixels or cells to node values at 16, 32 and 64 px, each a reduction of what it covers.

Grids cover the frame padded to whole roots; patches that lie wholly in padding hold 0, the least any score can be,
so they are never busy and never raise a parent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.frame import bands
from vgtok.tokenize.geometry import CELL, Extent

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
