"""Exact counts: every canvas reaches its target, and reachable counts are those of a brute-force search."""

from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize.pyramids import random_pyramid, structure_of
from vgtok import Tokenizer
from vgtok.tokenize.count import cheapest_change, exact_single_pass, exact_splits, nearest_gain, target_count
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent, Pyramid, nest
from vgtok.tokenize.split import Nodes, busy_nodes, count_tokens, gated_splits
from vgtok.tokenize.tokens import tokens_from_splits

extents = st.builds(Extent, st.integers(1, 700), st.integers(1, 700))
small_extents = st.builds(Extent, st.integers(1, 160), st.integers(1, 160))
budgets = st.floats(0.0625, 1.0)
ranks = st.sampled_from((0.0, 0.05, 0.2, 0.4, 0.9))


def exact(extent: Extent, budget: float, rank: float, seed: int, distinct: int) -> tuple[int, int]:
    scores = random_pyramid(extent, seed, distinct)
    structure = structure_of(random_pyramid(extent, seed + 1, distinct)) if rank else None
    target = target_count(budget, extent, levels=3)
    splits = exact_splits(scores, structure, extent, target, rank)
    tokens = tokens_from_splits(splits, extent, (extent.height, extent.width))
    tokens.validate()
    return len(tokens), target


@given(extents, budgets, ranks, st.integers(0, 2**32 - 1), st.sampled_from((1, 3, 1000)))
@settings(max_examples=200, deadline=None)
def test_every_frame_gets_its_count(extent: Extent, budget: float, rank: float, seed: int, distinct: int) -> None:
    tokens, target = exact(extent, budget, rank, seed, distinct)
    assert tokens == target
    assert abs(tokens - np.clip(budget * extent.dense, extent.roots, extent.dense)) <= 2
    if extent.rows(CELL) % 4 == 0 and extent.columns(CELL) % 4 == 0:
        assert (tokens - extent.roots) % 3 == 0


@pytest.mark.parametrize("budget", [0.1875, 0.3, 0.5, 0.9])
def test_a_frame_of_one_ragged_root(budget: float) -> None:
    """33 x 33 px: the root's split adds 3, two nodes add 1, one is free; 2 and 3 tokens cannot be had."""
    extent = Extent(33, 33)
    tokens, _ = exact(extent, budget, 0.0, 0, 1000)
    reachable = (1, 4, 5, 6, 7, 8, 9)
    assert abs(tokens - budget * 9) == min(abs(count - budget * 9) for count in reachable)


@given(st.one_of(extents, small_extents), budgets, ranks, st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_all_images_of_one_size_get_the_same_count(extent: Extent, budget: float, rank: float, seed: int) -> None:
    counts = {exact(extent, budget, rank, seed + n, distinct)[0] for n, distinct in enumerate((1, 2, 4, 1000))}
    assert len(counts) == 1


@pytest.mark.parametrize(("width", "height", "budget"), [(65, 33, 0.25), (42, 135, 0.2), (33, 65, 0.5), (94, 158, 0.3)])
@pytest.mark.parametrize("splitter", ["quadtree", "single_pass"])
def test_pictures_of_a_small_ragged_frame_get_the_same_count(
    width: int, height: int, budget: float, splitter: Literal["quadtree", "single_pass"]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    spot = np.full_like(noise, 90)
    spot[height // 2 :, width // 2 : width // 2 + 4] = 255
    tokenizer = Tokenizer(max(budget, 0.25), splitter=splitter, canvas="native")
    counts = {len(tokenizer(picture)) for picture in (noise, spot, np.zeros_like(noise), noise // 64 * 64)}
    assert len(counts) == 1


@given(extents, ranks, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_whole_budget_is_the_dense_grid(extent: Extent, rank: float, seed: int) -> None:
    scores, structure = random_pyramid(extent, seed), structure_of(random_pyramid(extent, seed + 1))
    splits = exact_splits(scores, structure, extent, extent.dense, rank)
    tokens = tokens_from_splits(splits, extent, (extent.height, extent.width))
    assert len(tokens) == extent.dense
    assert set(tokens.sizes.tolist()) == {16}


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 100), ranks, st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_the_count_of_a_percentile_gives_the_partition_of_that_percentile(
    rows: int, columns: int, percentile: float, rank: float, seed: int
) -> None:
    """The two modes are one: asked for the count a threshold gives, the exact mode splits the same nodes."""
    extent = Extent(64 * rows, 64 * columns)
    rng = np.random.default_rng(seed)
    scores, cells = (
        nest(rng.permutation(extent.dense).reshape(extent.grid_shape(CELL)).astype(np.float32)) for _ in "ab"
    )
    structure = structure_of(cells)
    expected = gated_splits(busy_nodes(scores, extent, percentile), structure, rank)
    population = int(sum(nodes.sum() for nodes in busy_nodes(scores, extent, percentile)))
    # Several populations can leave one count; the exact mode takes the smallest of them.
    if population and (population - 1) - round(rank * (population - 1)) == population - round(rank * population):
        return
    splits = exact_splits(scores, structure, extent, count_tokens(expected, extent), rank)
    np.testing.assert_array_equal(splits.coarse, expected.coarse)
    np.testing.assert_array_equal(splits.middle, expected.middle)


@given(extents, st.floats(0.25, 1.0), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_single_pass_takes_the_best_nodes_to_the_token(extent: Extent, budget: float, seed: int) -> None:
    scores = random_pyramid(extent, seed, 1000)
    target = target_count(budget, extent, levels=2)
    splits = exact_single_pass(scores, extent, target)
    tokens = tokens_from_splits(splits, extent, (extent.height, extent.width))
    tokens.validate()
    assert len(tokens) == target
    assert set(tokens.sizes.tolist()) <= {16, 32}
    if extent.rows(CELL) % 2 == 0 and extent.columns(CELL) % 2 == 0:
        whole = scores.middle[: extent.rows(NODE), : extent.columns(NODE)]
        split = splits.middle[: extent.rows(NODE), : extent.columns(NODE)]
        if split.any() and not split.all():
            assert whole[split].min() >= whole[~split].max()


@pytest.mark.parametrize("rank", [0.05, 0.2, 0.4])
def test_above_the_cap_the_gate_yields_before_the_budget_does(rank: float) -> None:
    extent = Extent(512, 512)
    rng = np.random.default_rng(8)
    scores = nest(rng.random((32, 32), dtype=np.float32))
    cells: Pyramid = nest(rng.random((32, 32), dtype=np.float32))
    cap = extent.roots + 3 * (5 * extent.roots - round(rank * 5 * extent.roots))
    for target in (cap, cap + 3, extent.dense - 3):
        splits = exact_splits(scores, structure_of(cells), extent, target, rank)
        assert count_tokens(splits, extent) == target
        stopped = ~splits.middle
        if target > cap:
            # Whatever still stops is what has least structure.
            assert cells.middle[stopped].max() <= cells.middle[~stopped].min()


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
