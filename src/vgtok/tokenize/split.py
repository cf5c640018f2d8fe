"""Scores to splits: which 64-px roots and which 32-px nodes are read finer.

Two ways: the paper's top-down quadtree over three sizes, and Single-pass over two. A node is busy when it and at least
one of its children score above the threshold; with nested scores one implies the other.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent
from vgtok.tokenize.pyramid import Grid, Pyramid, children, parents


class Nodes(NamedTuple):
    """One flag per node: `middle` (2R, 2C) at 32 px and `coarse` (R, C) at 64 px."""

    middle: NDArray[np.bool_]
    coarse: NDArray[np.bool_]


def percentile_threshold(values: NDArray[np.float32], percentile: float) -> np.float64:
    """The `percentile`-th percentile of (N,) values, between order statistics by linear interpolation."""
    if not 0.0 <= percentile <= 100.0:
        raise InputError(f"percentile: {percentile} is not between 0 and 100")
    position = (values.size - 1) * (percentile / 100.0)
    below = int(position)
    above = min(below + 1, values.size - 1)
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    return np.float64(low + (high - low) * (position - below))


def valid_values(grid: Grid, extent: Extent, size: int) -> NDArray[np.float32]:
    """The (N,) values of the patches that hold real pixels."""
    return grid[: extent.rows(size), : extent.columns(size)].ravel()


def busy_nodes(scores: Pyramid, extent: Extent, percentile: float) -> Nodes:
    """Nodes the ungated descent splits, at the threshold its percentile sets on the image's own 16-px grid."""
    threshold = percentile_threshold(valid_values(scores.fine, extent, CELL), percentile)
    coarse = (scores.coarse > threshold) & (parents(scores.middle) > threshold)
    # A calm root is a leaf whatever lies below it.
    middle = (scores.middle > threshold) & (parents(scores.fine) > threshold) & children(coarse)
    return Nodes(middle, coarse)


def count_tokens(splits: Nodes, extent: Extent) -> int:
    """Tokens of the partition these splits describe, padding left out."""
    cells, nodes = extent.valid(CELL), extent.valid(NODE)
    fine = (cells & children(splits.middle)).sum()
    middle = (nodes & children(splits.coarse) & ~splits.middle).sum()
    return int(fine + middle + (~splits.coarse).sum())


def single_pass_percentile(budget: float) -> float:
    """The percentile at which `single_pass` keeps `budget` of a frame of whole nodes.

    No table is needed: a 32-px node that stays whole is one token instead of four, so the share kept falls by 0.0075
    with each of the 100 percentiles.
    """
    if not 0.25 <= budget <= 1.0:
        raise BudgetError(f"budget: {budget} is outside 0.25 to 1, what splitter 'single_pass' reaches")
    return (1.0 - budget) / 0.0075


def single_pass(scores: Pyramid, extent: Extent, percentile: float) -> Nodes:
    """Two scales, each decided once: the lowest-scoring `percentile` per cent of the 32-px nodes stay whole.

    The 16-px scale is what the coarse mask leaves over, so only the 32-px percentile moves the partition. Nodes are
    taken by rank, equal scores by position, so that even a constant grid gives exactly its share.
    """
    if not 0.0 <= percentile <= 100.0:
        raise InputError(f"percentile: {percentile} is not between 0 and 100")
    valid = np.flatnonzero(extent.valid(NODE))
    whole = valid[np.argsort(scores.middle.ravel()[valid], kind="stable")[: round(percentile / 100.0 * valid.size)]]
    middle = extent.valid(NODE)
    middle.ravel()[whole] = False
    return Nodes(middle, extent.valid(ROOT))
