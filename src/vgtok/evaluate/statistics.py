"""Statistics over training seeds: how far two means of a few runs must lie apart before the difference is read."""

import math
from collections.abc import Sequence

import numpy as np

from vgtok.errors import InputError

RUNS = 3
"""Runs behind every trained cell of the paper."""


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation of the runs of one cell."""
    if len(values) < 2:
        raise InputError(f"seeds: a deviation needs two runs or more, got {len(values)}")
    return float(np.mean(values)), float(np.std(values, ddof=1))


def pooled_deviation(deviations: Sequence[float]) -> float:
    """Within-cell deviation over cells of equally many runs: the root of their mean variance."""
    if not len(deviations):
        raise InputError("seeds: there are no cells to pool")
    return float(np.sqrt(np.mean(np.square(deviations))))


def standard_error_of_difference(deviation: float, runs: int = RUNS) -> float:
    """Standard error of the difference of two means of `runs` runs each."""
    return deviation * math.sqrt(2 / runs)


def seed_floor(deviation: float, runs: int = RUNS) -> float:
    """The smallest difference worth arguing for: twice its standard error."""
    return 2 * standard_error_of_difference(deviation, runs)
