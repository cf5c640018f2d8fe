"""Choose splits that give an exact number of tokens.

A split replaces a patch by those of its four children that hold pixels, so it adds 3 tokens inside the image and 0, 1
or 3 at a ragged edge. Splits are taken in the order of their scores until the count reaches the target:

    order of scores   | split: root 7, node 31, root 2, ... |  margin  | whole: node 12, root 5, ... |
    tokens            R  ........ count grows by 3 ........  target ....................  dense

At the margin, splits that add 1 are toggled until the count is exact.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations, product
from operator import or_

import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent, Pyramid, children
from vgtok.tokenize.split import Nodes, Structure


def target_count(budget: float, extent: Extent, *, levels: int) -> int:
    """Return the token count nearest to `budget` x dense that a partition of this extent into `levels` sizes can have.

    It depends on the size alone: every image of that size can be split into that many tokens.
    """
    least = extent.patches(ROOT if levels == 3 else NODE)
    wanted = min(max(budget * extent.dense, least), extent.dense)
    side = 4 if levels == 3 else 2
    whole = extent.rows(CELL) % side == 0 and extent.columns(CELL) % side == 0
    # Without a ragged edge the reachable counts are least + 3 m; with one nearly all counts are.
    nearest = least + 3 * round((wanted - least) / 3) if whole else round(wanted)
    return least + nearest_gain(extent, nearest - least, levels=levels)


def exact_splits(scores: Pyramid, structure: Structure | None, extent: Extent, target: int, rank: float) -> Nodes:
    """Return the splits of the gated quadtree that give exactly `target` tokens.

    Up to the largest count the gate allows at its rank, the gate keeps that rank. Above it every node is busy and the
    gate stops only as many as the target allows.
    """
    problem = _Problem.quadtree(scores, structure, extent)
    everything = problem.order.size

    def gated(size: int) -> int:
        return problem.count(problem.splits(size, round(rank * size)))

    if gated(everything) >= target:
        size = bisect_left(range(everything), target, key=gated)
        splits = problem.splits(size, round(rank * size))
    else:

        def stopping_fewer(spared: int) -> int:
            return problem.count(problem.splits(everything, round(rank * everything) - spared))

        spared = bisect_left(range(round(rank * everything)), target, key=stopping_fewer)
        splits = problem.splits(everything, round(rank * everything) - spared)
    return problem.nodes(problem.settle(splits, target))


def exact_single_pass(scores: Pyramid, extent: Extent, target: int) -> Nodes:
    """Return the splits of the two-scale partition with exactly `target` tokens: the best-scoring 32-px nodes."""
    problem = _Problem.single_pass(scores, extent)

    def prefix(size: int) -> int:
        return problem.count(problem.splits(size, 0))

    splits = problem.splits(bisect_left(range(problem.order.size), target, key=prefix), 0)
    return problem.nodes(problem.settle(splits, target))


def split_thresholds(scores: Pyramid, extent: Extent, shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return for each of (K,) rising shares of the dense grid the score of the split that reaches it, without a gate.

    Patches split in the order of their scores; -inf where even all of them do not reach the share.
    """
    problem = _Problem.quadtree(scores, None, extent)
    # A node comes after its root, so every prefix of the order is a partition.
    counts = extent.roots + np.cumsum(problem.gain[problem.order])
    flat = np.concatenate([scores.coarse.ravel(), np.minimum(scores.middle, children(scores.coarse)).ravel()])
    places = np.searchsorted(counts, np.floor(shares * extent.dense))
    ordered = np.append(flat[problem.order], np.float32(-np.inf))
    return np.asarray(ordered[places], dtype=np.float32)


@dataclass(frozen=True)
class _Problem:
    """All patches that may split under one flat index: roots first, then 32-px nodes."""

    extent: Extent
    order: NDArray[np.int64]
    """Indices of the patches that may split, highest score first."""
    gate_rank: NDArray[np.int64]
    """Rank of each patch by the gate statistic; the lowest stop first."""
    gain: NDArray[np.int64]
    """Tokens a split adds: children that hold valid pixels, less the patch itself."""
    parent: NDArray[np.int64]
    """Index of the root of each patch; a root is its own parent."""
    always: NDArray[np.bool_]
    """Patches that are always split: those with one valid child, which adds no token, and the roots of two scales."""

    @classmethod
    def quadtree(cls, scores: Pyramid, structure: Structure | None, extent: Extent) -> "_Problem":
        # A node may not come before its root; with nested scores it never does.
        middle = np.minimum(scores.middle, children(scores.coarse))
        score = np.concatenate([scores.coarse.ravel(), middle.ravel()])
        roots = scores.coarse.size
        if structure is None:
            gate_rank = np.zeros(score.size, dtype=np.int64)
        else:
            # On ties 32-px nodes rank below 64-px roots, as in the gate of the percentile mode.
            ranked = np.argsort(np.concatenate([structure.middle.ravel(), structure.coarse.ravel()]), kind="stable")
            places = np.empty(ranked.size, dtype=np.int64)
            places[ranked] = np.arange(ranked.size)
            gate_rank = np.concatenate([places[-roots:], places[:-roots]])
        return cls._over(extent, score, gate_rank, np.zeros(score.size, dtype=np.bool_))

    @classmethod
    def single_pass(cls, scores: Pyramid, extent: Extent) -> "_Problem":
        score = np.concatenate([scores.coarse.ravel(), scores.middle.ravel()])
        always = np.arange(score.size) < scores.coarse.size
        return cls._over(extent, score, np.zeros(score.size, dtype=np.int64), always)

    @classmethod
    def _over(
        cls,
        extent: Extent,
        score: NDArray[np.float32],
        gate_rank: NDArray[np.int64],
        always: NDArray[np.bool_],
    ) -> "_Problem":
        cells, nodes, roots = (extent.valid(size) for size in (CELL, NODE, ROOT))
        gain = np.concatenate([_sum_of_children(nodes).ravel(), _sum_of_children(cells).ravel()]) - 1
        valid = np.concatenate([roots.ravel(), nodes.ravel()])
        root_index = np.arange(roots.size).reshape(roots.shape)
        parent = np.concatenate([root_index.ravel(), children(root_index).ravel()])
        always = (always | (gain == 0)) & valid
        order = np.argsort(-score, kind="stable")
        return cls(extent, order[(valid & ~always)[order]], gate_rank, gain, parent, always)

    @property
    def _first_node(self) -> int:
        """Index of the first 32-px node: the number of roots, also of those without data."""
        return self.extent.root_rows * self.extent.root_columns

    def splits(self, size: int, stops: int) -> NDArray[np.bool_]:
        """Return the split flags if the first `size` patches are busy and the gate stops `stops` of them."""
        busy = self.order[:size]
        split = self.always.copy()
        if stops > 0:
            places = self.gate_rank[busy]
            busy = busy[places > np.partition(places, stops - 1)[stops - 1]]
        split[busy] = True
        return split & split[self.parent]

    def count(self, split: NDArray[np.bool_]) -> int:
        """Return the number of tokens these splits give."""
        return self.extent.roots + int(self.gain[split].sum())

    def settle(self, split: NDArray[np.bool_], target: int) -> NDArray[np.bool_]:
        """Change splits near the margin until the count is `target`, which must be reachable.

        Bisection is exact if every split adds 3. If the image ends inside nodes, some splits add 1: toggle a few of
        those until the difference is a multiple of 3, then add the best splits of 3 or undo the worst. If that fails,
        on canvases of a few roots, weigh all changes together.
        """
        if self.count(split) == target:
            return split
        best = self._fill_with_threes(split, target)
        # Modulo 3, adding one single equals undoing two.
        one_more = (target - self.count(split)) % 3 == 1
        for adds, times in ((True, 1), (False, 2)) if one_more else ((False, 1), (True, 2)):
            if self.count(best) != target:
                trial = self._fill_with_threes(self._toggle_singles(split, adds, times), target)
                best = min(best, trial, key=lambda flags: abs(self.count(flags) - target))
        return best if self.count(best) == target else self._change_cheaply(best, target)

    def _change_cheaply(self, split: NDArray[np.bool_], target: int) -> NDArray[np.bool_]:
        """Make the count `target` by the changes nearest to the margin."""
        # (R, 5): each root, then its four nodes in reading order.
        roots = self._first_node
        grid = np.arange(self.gain.size - roots).reshape(self.extent.grid_shape(NODE))
        rows, columns = grid.shape
        nodes = grid.reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4) + roots
        families = np.concatenate([np.arange(roots)[:, None], nodes], axis=1)
        # Flipping a patch costs its distance from the margin; patches outside `order` may not flip.
        cost = np.full(self.gain.size, np.inf)
        cost[self.order] = 1 + np.abs(np.arange(self.order.size) - int(split[self.order].sum()))
        changed = split.copy()
        changed[families] = cheapest_change(
            split[families], self.gain[families], cost[families], target - self.count(split)
        )
        changed |= self.always
        return changed & changed[self.parent]

    def _toggle_singles(self, split: NDArray[np.bool_], adds: bool, times: int) -> NDArray[np.bool_]:
        """Split (or undo) up to `times` patches whose split adds 1."""
        trial = split.copy()
        for _ in range(times):
            singles = self.order[(self.gain[self.order] == 1) & (trial[self.order] != adds)]
            # The count must change by one modulo 3, so no other single may be toggled along with this one.
            if adds:
                hanging = ~trial[self.parent] & (self.gain[self.parent] == 1)
            else:
                hanging = np.zeros(trial.size, dtype=np.bool_)
                hanging[self.parent[trial & (self.gain == 1) & (self.parent != np.arange(trial.size))]] = True
            singles = singles[~hanging[singles] | ((self.parent[singles] == singles) & adds)]
            if singles.size == 0:
                break
            node = singles[0 if adds else -1]
            if adds:
                trial[[node, self.parent[node]]] = True
            else:
                trial[(self.parent == node) | (np.arange(trial.size) == node)] = False
        return trial

    def _fill_with_threes(self, split: NDArray[np.bool_], target: int) -> NDArray[np.bool_]:
        """Add the best splits of 3, or undo the worst, towards `target`."""
        split = split.copy()
        missing = target - self.count(split)
        threes = self.order[self.gain[self.order] == 3]
        for node in threes if missing >= 2 else ():
            if missing >= 2 and not split[node] and (split[self.parent[node]] or self.parent[node] == node):
                split[node] = True
                missing -= 3
        for node in threes[::-1] if missing <= -2 else ():
            if missing <= -2 and split[node]:
                below = split & (self.parent == node)
                below[node] = False
                # Nodes below that are split at no cost are undone with their root.
                if not self.gain[below].any():
                    split[node] = False
                    missing += 3
        return split & split[self.parent]

    def nodes(self, split: NDArray[np.bool_]) -> Nodes:
        """Return the flags as grids."""
        roots = self._first_node
        middle = split[roots:].reshape(self.extent.grid_shape(NODE))
        return Nodes(middle, split[:roots].reshape(self.extent.grid_shape(ROOT)))


def _sum_of_children(valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows, columns = valid.shape
    return np.asarray(valid.reshape(rows // 2, 2, columns // 2, 2).sum(axis=(1, 3)), dtype=np.int64)


# Which counts a canvas can have.


def nearest_gain(extent: Extent, wanted: int, *, levels: int) -> int:
    """Return the reachable gain over the smallest partition that is nearest to `wanted` tokens; the lower on ties."""
    side = 4 if levels == 3 else 2
    rows, columns = extent.rows(CELL) // side, extent.columns(CELL) // side
    squares = extent.valid(side * CELL)
    inside = 3 * int(squares[:rows, :columns].sum()) * (5 if levels == 3 else 1)
    beyond = squares[rows:, :columns], squares[:rows, columns:], squares[rows:, columns:]
    ragged = extent.rows(CELL) % side, extent.columns(CELL) % side
    edge = _edge_gains(*ragged, side, *(int(part.sum()) for part in beyond))
    distance = 0
    # A gain of 0 is always reachable, so the search ends.
    while True:
        for gain in (wanted - distance, wanted + distance):
            if _reachable(gain, edge, inside):
                return gain
        distance += 1


def _reachable(gain: int, edge: NDArray[np.bool_], inside: int) -> bool:
    """Return whether a gain is the sum of an edge gain and a multiple of 3 up to `inside`, the gain of whole roots."""
    lowest = max(0, gain - inside)
    return gain >= 0 and bool(edge[lowest + (gain - lowest) % 3 : gain + 1 : 3].any())


@lru_cache(maxsize=256)
def _edge_gains(height: int, width: int, side: int, below: int, right: int, corner: int) -> NDArray[np.bool_]:
    """Return flags: whether splits at a ragged edge can add exactly g tokens; it is `height` and `width` cells wide.

    `side` is the side in cells of the squares that split independently: 4 for roots, 2 for the nodes of two scales.
    `below`, `right` and `corner` of them are cut by the lower edge, by the right one and by both.
    """
    squares = [(height, side)] * below + [(side, width)] * right + [(height, width)] * corner
    # Bit g of an integer stands for gain g.
    sums = 1
    for square in squares:
        if all(square):
            sums = reduce(or_, (sums << gain for gain in _square_gains(*square, side)))
    octets = np.frombuffer(sums.to_bytes(sums.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little").astype(np.bool_)


@lru_cache(maxsize=64)
def _square_gains(height: int, width: int, side: int) -> frozenset[int]:
    """Return the gains possible in a square of which (height, width) cells hold pixels."""
    if side == 2:
        return frozenset({0, height * width - 1})
    nodes = [min(2, height - y) * min(2, width - x) - 1 for y in range(0, height, 2) for x in range(0, width, 2)]
    chosen = (sum(part) for size in range(len(nodes) + 1) for part in combinations(nodes, size))
    return frozenset({0, *(len(nodes) - 1 + added for added in chosen)})


# The cheapest change of a few tokens, weighed over all roots at once.

_LARGEST_CHANGE = 15
"""Most tokens one root can gain or lose: it holds 1 to 16."""

_MOST_CHANGES = 2 * _LARGEST_CHANGE + 4
"""Most roots that the cheapest change of a few tokens touches.

Order its changes so that the running sum stays near 0. No sum occurs twice: the changes in between could be left out.
"""

_OPTIONS = np.array([[False] * 5, *([True, *nodes] for nodes in product((False, True), repeat=4))])
"""All ways to split a root: the flag of the root, then those of its four nodes."""


def cheapest_change(
    split: NDArray[np.bool_], gain: NDArray[np.int64], cost: NDArray[np.float64], missing: int
) -> NDArray[np.bool_]:
    """Return (R, 5) split flags of a partition with `missing` more tokens, at the lowest cost.

    A row is a root and its four nodes: whether each is `split`, the tokens its split adds (`gain`) and the `cost` of
    flipping it. Flags of infinite cost may not change; they are returned as not split.
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
    """Return roots and options whose (R, 17) changes add up to `missing` at the lowest price: a knapsack over sums."""
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
    """Return the roots that offer a change at one of the lowest prices; the cheapest sum needs no others."""
    kept: set[int] = set()
    for step in (*range(-_LARGEST_CHANGE, 0), *range(1, _LARGEST_CHANGE + 1)):
        offered = np.where(change == step, price, np.inf).min(axis=1)
        cheapest = np.argsort(offered, kind="stable")[:_MOST_CHANGES]
        kept.update(int(root) for root in cheapest if np.isfinite(offered[root]))
    return sorted(kept)
