"""Counts a frame can have: all of them by brute force, and the cheapest change to one of them."""

from itertools import product

import numpy as np
import pytest

from vgtok.tokenize.count import cheapest_change, nearest_gain
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent
from vgtok.tokenize.split import Nodes, count_tokens


def partitions(extent: Extent, levels: int) -> set[int]:
    """The count of every partition of a frame of one or two roots."""
    roots = np.flatnonzero(extent.valid(ROOT))
    nodes = np.flatnonzero(extent.valid(NODE))
    counts = set()
    for chosen in product((False, True), repeat=roots.size if levels == 3 else 0):
        coarse = extent.valid(ROOT)
        coarse.ravel()[roots] = chosen or True
        below = np.repeat(np.repeat(coarse, 2, axis=0), 2, axis=1)
        for fine in product((False, True), repeat=nodes.size):
            middle = np.zeros(extent.grid_shape(NODE), dtype=np.bool_)
            middle.ravel()[nodes] = fine
            counts.add(count_tokens(Nodes(middle & below, coarse), extent))
    return counts


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("size", [(1, 1), (33, 33), (65, 33), (17, 49), (64, 64), (96, 40), (50, 128), (81, 64)])
def test_the_nearest_count_of_all_partitions(size: tuple[int, int], levels: int) -> None:
    extent = Extent(*size)
    possible = partitions(extent, levels)
    least = min(possible)
    for wanted in range(least, extent.dense + 1):
        reached = least + nearest_gain(extent, wanted - least, levels=levels)
        assert reached in possible
        assert abs(reached - wanted) == min(abs(count - wanted) for count in possible)


def test_gaps_are_few_and_at_the_ends_of_large_frames() -> None:
    extent = Extent(1000, 1001)
    gains = [nearest_gain(extent, wanted, levels=3) for wanted in range(extent.dense - extent.roots + 1)]
    missed = [wanted for wanted, gain in enumerate(gains) if gain != wanted]
    assert all(wanted < 3 or wanted > len(gains) - 4 for wanted in missed)
    assert extent.rows(CELL) % 4


def test_the_cheapest_change_is_found() -> None:
    """Two roots of 3 + 3 + 1 + 1: one token more is had by a single, or by a three and two singles fewer."""
    split = np.array([[True, True, False, True, False], [True, False, False, True, True]])
    gain = np.array([[3, 3, 3, 1, 1]] * 2)
    cost = np.array([[9.0, 1, 5, 4, 8], [9, 2, 7, 1, 2]])
    changed = cheapest_change(split, gain, cost, 1)
    # Root 0: its first node is made whole (-3) ... or its last split (+1, 8); root 1: +3 -1 -1 costs 2 + 1 + 2.
    assert changed.tolist() == [split[0].tolist(), [True, True, False, False, False]]


def test_what_may_not_change_stays() -> None:
    split = np.array([[True, False, False, False, False]])
    gain = np.array([[1, 1, -1, 1, -1]])
    cost = np.array([[np.inf, 3, np.inf, 1, np.inf]])
    assert cheapest_change(split, gain, cost, 1).tolist() == [[False, False, False, True, False]]
