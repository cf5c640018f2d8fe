"""Where refinement stops: the busy nodes with the least two-dimensional structure stay whole.

A gate statistic gives every 32- and 64-px node a value that is low where the node holds clutter only. The gate ranks
the busy nodes of the ungated descent at both levels in one list and stops the lowest `rank` share of them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.frame import Frame
from vgtok.tokenize.geometry import NODE, ROOT
from vgtok.tokenize.pyramid import Grid, children, nest
from vgtok.tokenize.scores import TOP_HAT_WIDTHS, top_hat_cells
from vgtok.tokenize.split import Nodes
from vgtok.tokenize.structure import FULL_SIZE, HALF_SIZE, PAPER_AUROC, Reading, lambda_min_cells


class Structure(NamedTuple):
    """Gate statistic per node, low where it should stop: `middle` (2R, 2C) and `coarse` (R, C)."""

    middle: Grid
    coarse: Grid


Gate = Callable[[Frame], Structure]


def lambda_min(frame: Frame, reading: Reading = HALF_SIZE) -> Structure:
    """Largest lambda_min inside the node: the paper's g = 1 / (1 + lambda_min), in reverse order."""
    return Structure(*nest(lambda_min_cells(frame, reading))[1:])


def fine_element(frame: Frame) -> Structure:
    """Largest top-hat response of the 5-px element alone."""
    return Structure(*nest(top_hat_cells(frame, min(TOP_HAT_WIDTHS)))[1:])


def homogeneity(frame: Frame) -> Structure:
    """Standard deviation of the luma inside the node: a homogeneous node stops."""
    return Structure(*(np.sqrt(_moments(frame, size)[1]).astype(np.float32) for size in (NODE, ROOT)))


def surround(frame: Frame) -> Structure:
    """Absolute difference between the node's mean luma and that of the eight nodes around it."""
    return Structure(*(_surround_contrast(frame, size) for size in (NODE, ROOT)))


def surround_homogeneity(frame: Frame) -> Structure:
    """The product of the two: contrast to the surround times the deviation within."""
    pairs = zip(surround(frame), homogeneity(frame), strict=True)
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
"""Every gate statistic by name: lambda_min in its three readings, then the four rivals of the paper's AUROC table."""


def fired_nodes(busy: Nodes, structure: Structure, rank: float) -> Nodes:
    """The round(rank x n) of the n busy nodes with the least structure, both levels in one list.

    On ties 32-px nodes come before 64-px ones: with a max-pooled statistic a stopped root's children then stop too.
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
    """The busy nodes that split: all but those that fire, and none below one that does."""
    if structure is None or rank == 0:
        return busy
    fired = fired_nodes(busy, structure, rank)
    coarse = busy.coarse & ~fired.coarse
    return Nodes(busy.middle & ~fired.middle & children(coarse), coarse)


def _moments(frame: Frame, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the luma over each `size`-px patch, ragged edges by their real pixels only."""
    extent = frame.extent
    rows, columns = extent.grid_shape(size)
    padding = ((0, rows * size - extent.height), (0, columns * size - extent.width))

    def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        blocks = np.pad(values, padding).reshape(rows, size, columns, size)
        return np.asarray(blocks.sum(axis=(1, 3)))

    luma = frame.luma.astype(np.float64)
    count = np.maximum(sums(np.ones_like(luma)), 1.0)
    mean = sums(luma) / count
    return mean, np.maximum(sums(luma * luma) / count - mean * mean, 0.0)


def _surround_contrast(frame: Frame, size: int) -> Grid:
    mean, _ = _moments(frame, size)
    valid = frame.extent.valid(size).astype(np.float64)
    ring = np.ones((3, 3))
    ring[1, 1] = 0.0
    around = cv2.filter2D(mean * valid, cv2.CV_64F, ring, borderType=cv2.BORDER_CONSTANT)
    neighbours = cv2.filter2D(valid, cv2.CV_64F, ring, borderType=cv2.BORDER_CONSTANT)
    return np.where(neighbours > 0, np.abs(mean - around / np.maximum(neighbours, 1.0)), 0.0).astype(np.float32)
