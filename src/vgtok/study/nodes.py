"""Quadtree nodes against ground truth: which hold part of an object, and how far the nearest one is."""

import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import CELL, Extent


def nodes_with_objects(boxes: NDArray[np.float64], extent: Extent, size: int) -> NDArray[np.bool_]:
    """Which `size`-px nodes of the padded grid overlap one of the (N, 4) canvas boxes by a positive area."""
    grid = np.zeros(extent.grid_shape(size), dtype=np.bool_)
    for x0, y0, x1, y1 in boxes:
        if x1 > x0 and y1 > y0:
            grid[int(y0 // size) : int(-(-y1 // size)), int(x0 // size) : int(-(-x1 // size))] = True
    return grid


def cells_to_nearest(corners: NDArray[np.int64], boxes: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Gap between `size`-px nodes at (M, 2) x y corners and the nearest of (N, 4) boxes, in 16-px cells; 0 overlaps.

    The gap is the larger of its horizontal and vertical part, so one cell away is one cell over, diagonals included.
    """
    if len(boxes) == 0:
        return np.full(len(corners), np.inf)
    x, y = corners[:, :1].astype(np.float64), corners[:, 1:].astype(np.float64)
    across = np.maximum(np.maximum(boxes[:, 0] - (x + size), x - boxes[:, 2]), 0.0)
    down = np.maximum(np.maximum(boxes[:, 1] - (y + size), y - boxes[:, 3]), 0.0)
    overlaps = (boxes[:, 0] < x + size) & (boxes[:, 2] > x) & (boxes[:, 1] < y + size) & (boxes[:, 3] > y)
    # Touching without overlap is a gap of nothing, yet not on an object: the least positive distance.
    gap = np.where(overlaps, 0.0, np.maximum(np.maximum(across, down), 1e-9))
    return np.asarray(gap.min(axis=1) / CELL)


def area_under_roc(positive: NDArray[np.float32], negative: NDArray[np.float32]) -> float:
    """Chance that a value of `positive` (P,) exceeds one of `negative` (Q,), ties counting half."""
    pooled = np.concatenate([positive, negative])
    _, inverse, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    above = np.cumsum(counts)
    mean_rank = above - (counts - 1) / 2
    rank_sum = mean_rank[inverse[: positive.size]].sum()
    return float((rank_sum - positive.size * (positive.size + 1) / 2) / (positive.size * negative.size))
