"""The compact score, a result of our own: structure in two directions, weighed against the clutter around it.

It goes past the paper's top-hat in three steps: line-shaped elements subtract paint and edges from the response before
it is pooled; a cell is credited with what its neighbourhood holds, because objects come in groups; and it is charged
for the contrast its neighbourhood holds anyway. A root then splits only where its children pay for it. lambda_min is
part of the score, so it is meant to be used without a gate.
"""

from collections.abc import Sequence
from functools import reduce

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.frame import Frame
from vgtok.tokenize.pyramid import Grid, Pyramid, parents, pool_bands
from vgtok.tokenize.structure import half_size, lambda_min_cells

_SQUARE = np.ones((9, 9), dtype=np.uint8)
_NEIGHBOURHOOD = 7
"""Cells a side of the square a cell is compared with: 112 px, a few vehicles wide."""

_FLOOR = 2.0**18
"""Clutter a neighbourhood is charged for at least, so that noise on empty ground does not count as objects."""


def _lines() -> tuple[NDArray[np.uint8], ...]:
    """Eight straight elements on the half-size grid, 5 to 7 px long, about 22 degrees apart."""
    shallow = np.zeros((7, 7), dtype=np.uint8)
    shallow[[2, 2, 3, 3, 3, 4, 4], np.arange(7)] = 1
    diagonal = np.eye(5, dtype=np.uint8)
    elements = (np.ones((1, 7), dtype=np.uint8), diagonal, shallow, shallow[::-1])
    turned = (elements[0].T, diagonal[::-1], shallow.T, shallow[::-1].T)
    return tuple(np.ascontiguousarray(element) for element in elements + turned)


_LINES = _lines()


def compact(frame: Frame) -> Pyramid:
    """Compact two-dimensional contrast, supported by its neighbours and divided by the clutter around."""
    contrast, clutter = _contrast_and_clutter(frame)
    evidence = np.floor(contrast.astype(np.float64) * np.sqrt(lambda_min_cells(frame).astype(np.float64)))
    support, price = _neighbourhood(evidence), _neighbourhood(clutter) + _FLOOR
    fine = np.rint(65536.0 * np.sqrt(evidence * support) / price).astype(np.float32)
    middle = parents(fine)
    return Pyramid(fine, middle, _worth_of_roots(middle))


def _worth_of_roots(middle: Grid) -> Grid:
    """(2R, 2C) to (R, C): the threshold at which a root's children stop paying for its split.

    Splitting a root costs as much as splitting a child. It pays while the children's surplus over the threshold exceeds
    the threshold itself, that is while it lies below the largest of (sum of the k best children) / (k + 1).
    """
    rows, columns = middle.shape
    four = middle.reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).reshape(rows // 2, columns // 2, 4)
    sums = np.sort(four.astype(np.float64), axis=-1)[..., ::-1].cumsum(axis=-1)
    return np.asarray((sums / np.arange(2.0, 6.0)).max(axis=-1), dtype=np.float32)


def _contrast_and_clutter(frame: Frame) -> tuple[Grid, Grid]:
    """Per cell the largest compact response and the sum of the square one, on the square root of half-size luma.

    The square root evens out light and shadow, so that one threshold serves both.
    """
    root = (np.sqrt(half_size(frame.luma).astype(np.float32)) * np.float32(256)).astype(np.uint16)
    halo = 2 * (_SQUARE.shape[0] - 1)

    def half(rows: slice) -> NDArray[np.uint16]:
        return root[rows.start // 2 : -(-rows.stop // 2)]

    contrast = pool_bands(frame.extent, halo, lambda rows: _top_hat(half(rows), _LINES), shrink=2)
    clutter = pool_bands(frame.extent, halo, lambda rows: _top_hat(half(rows), (_SQUARE,)), 2, np.add)
    return contrast, clutter


def _top_hat(values: NDArray[np.uint16], elements: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint16]:
    """What no element fits into: (H, W) less the highest opening, or the lowest closing less it, the larger of both."""
    opened, closed = (
        reduce(combine, (cv2.morphologyEx(values, kind, element) for element in elements))
        for kind, combine in ((cv2.MORPH_OPEN, np.maximum), (cv2.MORPH_CLOSE, np.minimum))
    )
    return np.asarray(np.maximum(values - opened, closed - values))


def _neighbourhood(cells: NDArray[np.generic]) -> NDArray[np.float64]:
    """Sums of whole numbers over the square of cells around each, nothing outside the grid; padding holds zero."""
    size = (_NEIGHBOURHOOD, _NEIGHBOURHOOD)
    sums = cv2.boxFilter(cells.astype(np.float64), -1, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(sums, dtype=np.float64)
