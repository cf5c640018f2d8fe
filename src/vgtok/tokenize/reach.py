"""Which token counts a frame can have, and the cheapest way to one of them that is a few tokens off.

Both follow from geometry: a split adds 3 tokens inside a frame, and 0, 1 or 3 where the frame ends inside the node. On
most frames the ragged edge fills every gap between two counts; on frames of a few roots it does not.
"""

from functools import lru_cache, reduce
from itertools import combinations, product
from operator import or_

import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import CELL, Extent

_LARGEST_CHANGE = 15
"""Tokens one root can gain or lose: it is 1 to 16 of them."""

_MOST_CHANGES = 2 * _LARGEST_CHANGE + 4
"""Roots that the cheapest change of a few tokens touches at most.

Ordered so that the running sum stays near 0, no sum may come twice: the changes between the two could be left out.
"""

_OPTIONS = np.array([[False] * 5, *([True, *nodes] for nodes in product((False, True), repeat=4))])
"""Every way to split a root: the root itself, then its four nodes."""


def nearest_gain(extent: Extent, wanted: int, *, levels: int) -> int:
    """What splits of this frame can add to its least count, nearest to `wanted` tokens; the lower of two as near."""
    side = 4 if levels == 3 else 2
    rows, columns = extent.rows(CELL), extent.columns(CELL)
    inside = 3 * (rows // side) * (columns // side) * (5 if levels == 3 else 1)
    edge = _edge_gains(rows, columns, side)
    distance = 0
    # Splitting nothing adds 0, so the search ends.
    while True:
        for gain in (wanted - distance, wanted + distance):
            if _reachable(gain, edge, inside):
                return gain
        distance += 1


def cheapest_change(
    split: NDArray[np.bool_], gain: NDArray[np.int64], cost: NDArray[np.float64], missing: int
) -> NDArray[np.bool_]:
    """The (R, 5) split flags of a partition with `missing` tokens more, at the least cost.

    A row is a root and its four nodes: whether each is `split`, the tokens that its split adds, and what it costs to
    flip it. A cost is infinite where a flag is not free to change; nodes of that kind are returned as not split.
    """
    fixed = np.isinf(cost)
    gain = np.where(fixed, 0, gain)
    flips = _OPTIONS[None] != split[:, None]
    # (R, 17), as every option of a root
    price = (flips * np.where(fixed, 0.0, cost)[:, None]).sum(axis=2)
    price[flips[:, :, 0] & fixed[:, :1]] = np.inf
    change = (_OPTIONS[None] * gain[:, None]).sum(axis=2) - (split * gain).sum(axis=1)[:, None]
    flags = split.copy()
    for root, option in _chosen(change, price, missing):
        flags[root] = _OPTIONS[option]
    return flags & ~fixed


def _chosen(change: NDArray[np.int64], price: NDArray[np.float64], missing: int) -> list[tuple[int, int]]:
    """Roots and options whose (R, 17) changes add up to `missing` at the least price: a knapsack over sums."""
    reach = _LARGEST_CHANGE * _MOST_CHANGES
    best = np.full(2 * reach + 1, np.inf)
    best[reach] = 0.0
    taken: list[tuple[int, NDArray[np.int8]]] = []
    for root in _candidates(change, price):
        before, choice = best, np.full(best.size, -1, dtype=np.int8)
        best = before.copy()
        for option in np.flatnonzero(np.isfinite(price[root]) & (change[root] != 0)):
            step = int(change[root, option])
            moved = np.full(best.size, np.inf)
            moved[max(step, 0) : best.size + min(step, 0)] = before[max(-step, 0) : best.size - max(step, 0)]
            moved += price[root, option]
            better = moved < best
            best[better], choice[better] = moved[better], option
        taken.append((root, choice))
    place = reach + missing
    result = []
    for root, choice in reversed(taken):
        picked = int(choice[place])
        if picked >= 0:
            result.append((root, picked))
            place -= int(change[root, picked])
    return result


def _candidates(change: NDArray[np.int64], price: NDArray[np.float64]) -> list[int]:
    """The roots that offer some change at one of the lowest prices; the cheapest sum needs no others."""
    kept: set[int] = set()
    for step in (*range(-_LARGEST_CHANGE, 0), *range(1, _LARGEST_CHANGE + 1)):
        offered = np.where(change == step, price, np.inf).min(axis=1)
        cheapest = np.argsort(offered, kind="stable")[:_MOST_CHANGES]
        kept.update(int(root) for root in cheapest if np.isfinite(offered[root]))
    return sorted(kept)


def _reachable(gain: int, edge: NDArray[np.bool_], inside: int) -> bool:
    """Whether an edge gain and a multiple of 3 up to `inside`, which the whole roots give, make up a gain."""
    lowest = max(0, gain - inside)
    return gain >= 0 and bool(edge[lowest + (gain - lowest) % 3 : gain + 1 : 3].any())


@lru_cache(maxsize=256)
def _edge_gains(rows: int, columns: int, side: int) -> NDArray[np.bool_]:
    """Which gains the ragged edge of a frame of (rows, columns) cells can make: the flag at g is whether g is one.

    `side` is that of the squares that split on their own, in cells: 4 for roots, 2 for the nodes of two scales.
    """
    height, width = rows % side, columns % side
    squares = [(height, side)] * (columns // side) + [(side, width)] * (rows // side) + [(height, width)]
    # Bit g of a whole number stands for gain g.
    sums = 1
    for square in squares:
        if all(square):
            sums = reduce(or_, (sums << gain for gain in _square_gains(*square, side)))
    octets = np.frombuffer(sums.to_bytes(sums.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little").astype(np.bool_)


@lru_cache(maxsize=64)
def _square_gains(height: int, width: int, side: int) -> frozenset[int]:
    """What splits can add in a square of which (height, width) cells hold pixels."""
    if side == 2:
        return frozenset({0, height * width - 1})
    nodes = [min(2, height - y) * min(2, width - x) - 1 for y in range(0, height, 2) for x in range(0, width, 2)]
    chosen = (sum(part) for size in range(len(nodes) + 1) for part in combinations(nodes, size))
    return frozenset({0, *(len(nodes) - 1 + added for added in chosen)})
