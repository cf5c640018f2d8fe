"""Split busy nodes and roots by a percentile of their scores, except those the gate stops as clutter.

Scores and a gate statistic per node enter, flags of the nodes and roots that split leave.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, Extent, Grid, Pyramid, children, nest, parents
from vgtok.tokenize.scores import TOP_HAT_WIDTHS, top_hat_cells
from vgtok.tokenize.structure import FULL_SIZE, HALF_SIZE, PAPER_AUROC, Reading, lambda_min_cells


class Nodes(NamedTuple):
    """One flag per node: `middle` (2R, 2C) at 32 px and `coarse` (R, C) at 64 px."""

    middle: NDArray[np.bool_]
    coarse: NDArray[np.bool_]


def percentile_threshold(values: NDArray[np.float32], percentile: float) -> np.float64:
    """Return the `percentile`-th percentile of (N,) values, linearly interpolated."""
    if not 0.0 <= percentile <= 100.0:
        raise InputError(f"percentile: {percentile} is not between 0 and 100")
    position = (values.size - 1) * (percentile / 100.0)
    below = int(position)
    above = min(below + 1, values.size - 1)
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    return np.float64(low + (high - low) * (position - below))


def valid_values(grid: Grid, extent: Extent, size: int) -> NDArray[np.float32]:
    """Return the (N,) values of the patches that hold valid pixels."""
    if extent.data is not None:
        return grid[extent.valid(size)]
    return grid[: extent.rows(size), : extent.columns(size)].ravel()


def busy_nodes(scores: Pyramid, extent: Extent, percentile: float) -> Nodes:
    """Return the nodes split without a gate, at the threshold the percentile gives on the image's own cells."""
    threshold = percentile_threshold(valid_values(scores.fine, extent, CELL), percentile)
    coarse = (scores.coarse > threshold) & (parents(scores.middle) > threshold)
    # A root below the threshold is a leaf whatever lies below it.
    middle = (scores.middle > threshold) & (parents(scores.fine) > threshold) & children(coarse)
    if extent.data is not None:
        return Nodes(middle & extent.valid(NODE), coarse & extent.data)
    return Nodes(middle, coarse)


def count_tokens(splits: Nodes, extent: Extent) -> int:
    """Count the tokens these splits give, without padding."""
    cells, nodes = extent.valid(CELL), extent.valid(NODE)
    fine = (cells & children(splits.middle)).sum()
    middle = (nodes & children(splits.coarse) & ~splits.middle).sum()
    return int(fine + middle + (extent.valid(ROOT) & ~splits.coarse).sum())


def single_pass_percentile(budget: float) -> float:
    """Return the percentile at which `single_pass` keeps `budget` of an image of whole nodes.

    This needs no table: a 32-px node that stays whole is one token instead of four, so each percentile keeps 0.0075
    less.
    """
    if not 0.25 <= budget <= 1.0:
        raise BudgetError(f"budget: {budget} is outside 0.25 to 1, what splitter 'single_pass' reaches")
    return (1.0 - budget) / 0.0075


def single_pass(scores: Pyramid, extent: Extent, percentile: float) -> Nodes:
    """Split into two scales: the lowest-scoring `percentile` percent of the 32-px nodes stay whole.

    Nodes are taken by rank, equal scores by position, so that even a constant grid gives exactly its share.
    """
    if not 0.0 <= percentile <= 100.0:
        raise InputError(f"percentile: {percentile} is not between 0 and 100")
    valid = np.flatnonzero(extent.valid(NODE))
    whole = valid[np.argsort(scores.middle.ravel()[valid], kind="stable")[: round(percentile / 100.0 * valid.size)]]
    middle = extent.valid(NODE)
    middle.ravel()[whole] = False
    return Nodes(middle, extent.valid(ROOT))


def single_pass_strict(scores: Pyramid, extent: Extent, percentile: float) -> Nodes:
    """Split into two scales by the paper's rule: 32-px nodes below the percentile of all of them stay whole.

    Nodes that equal it split, so that ties keep more tokens than the share of `single_pass`.
    """
    threshold = percentile_threshold(valid_values(scores.middle, extent, NODE), percentile)
    return Nodes(extent.valid(NODE) & (scores.middle >= threshold), extent.valid(ROOT))


# The gate: busy nodes with the least structure stay whole.


class Structure(NamedTuple):
    """Gate statistic, low where a patch should stay whole: `middle` (2R, 2C) of nodes and `coarse` (R, C) of roots."""

    middle: Grid
    coarse: Grid


Gate = Callable[[CanvasPixels], Structure]


def lambda_min(pixels: CanvasPixels, reading: Reading = HALF_SIZE) -> Structure:
    """Largest lambda_min in the node: the paper's g = 1 / (1 + lambda_min) in reverse order."""
    return Structure(*nest(lambda_min_cells(pixels, reading))[1:])


def fine_element(pixels: CanvasPixels) -> Structure:
    """Largest top-hat response of the 5-px element alone."""
    return Structure(*nest(top_hat_cells(pixels, min(TOP_HAT_WIDTHS)))[1:])


def homogeneity(pixels: CanvasPixels) -> Structure:
    """Standard deviation of the luma in the node: a homogeneous node stops."""
    return Structure(*(np.sqrt(_moments(pixels, size)[1]).astype(np.float32) for size in (NODE, ROOT)))


def surround(pixels: CanvasPixels) -> Structure:
    """Absolute difference between the node's mean luma and that of the eight nodes around it."""
    return Structure(*(_surround_contrast(pixels, size) for size in (NODE, ROOT)))


def surround_homogeneity(pixels: CanvasPixels) -> Structure:
    """Product of contrast to the surroundings and standard deviation."""
    pairs = zip(surround(pixels), homogeneity(pixels), strict=True)
    return Structure(*(contrast * deviation for contrast, deviation in pairs))


GATES: dict[str, Gate] = {
    "lambda_min": lambda_min,
    "lambda_min_full": partial(lambda_min, reading=FULL_SIZE),
    "lambda_min_auroc": partial(lambda_min, reading=PAPER_AUROC),
    "surround_homogeneity": surround_homogeneity,
    "homogeneity": homogeneity,
    "surround": surround,
    "fine_element": fine_element,
}
"""Gates by name: lambda_min in its three readings, then the four others of the paper's AUROC table."""


def fired_nodes(busy: Nodes, structure: Structure, rank: float) -> Nodes:
    """Return the round(rank x n) of the n busy nodes and roots with the least structure.

    On ties 32-px nodes come before 64-px roots: with a max-pooled statistic the nodes of a stopped root then stop too.
    """
    chosen = np.flatnonzero(np.concatenate([busy.middle.ravel(), busy.coarse.ravel()]))
    values = np.concatenate([structure.middle.ravel(), structure.coarse.ravel()])[chosen]
    count = round(rank * chosen.size)
    fired = np.zeros(busy.middle.size + busy.coarse.size, dtype=np.bool_)
    fired[chosen[np.argsort(values, kind="stable")[:count]]] = True
    return Nodes(
        fired[: busy.middle.size].reshape(busy.middle.shape),
        fired[busy.middle.size :].reshape(busy.coarse.shape),
    )


def gated_splits(busy: Nodes, structure: Structure | None, rank: float) -> Nodes:
    """Return the busy nodes that split: all but those the gate stops, and none below a stopped root."""
    if structure is None or rank == 0:
        return busy
    fired = fired_nodes(busy, structure, rank)
    coarse = busy.coarse & ~fired.coarse
    return Nodes(busy.middle & ~fired.middle & children(coarse), coarse)


def _moments(pixels: CanvasPixels, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of the luma of each `size`-px patch, over its valid pixels only."""
    extent = pixels.extent
    rows, columns = extent.grid_shape(size)
    padding = ((0, rows * size - extent.height), (0, columns * size - extent.width))

    def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        blocks = np.pad(values, padding).reshape(rows, size, columns, size)
        return np.asarray(blocks.sum(axis=(1, 3)))

    luma = pixels.luma.astype(np.float64)
    count = np.maximum(sums(np.ones_like(luma)), 1.0)
    mean = sums(luma) / count
    return mean, np.maximum(sums(luma * luma) / count - mean * mean, 0.0)


def _surround_contrast(pixels: CanvasPixels, size: int) -> Grid:
    mean, _ = _moments(pixels, size)
    valid = pixels.extent.valid(size).astype(np.float64)
    ring = np.ones((3, 3))
    ring[1, 1] = 0.0
    around = cv2.filter2D(mean * valid, cv2.CV_64F, ring, borderType=cv2.BORDER_CONSTANT)
    neighbors = cv2.filter2D(valid, cv2.CV_64F, ring, borderType=cv2.BORDER_CONSTANT)
    return np.where(neighbors > 0, np.abs(mean - around / np.maximum(neighbors, 1.0)), 0.0).astype(np.float32)
