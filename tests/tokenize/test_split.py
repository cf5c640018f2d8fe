"""Splits and gate: against a node-by-node descent written the slow way, and the count identity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tokenize.pyramids import random_pyramid, structure_of
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL, NODE, CanvasPixels, Extent, Pyramid, parents
from vgtok.tokenize.split import (
    GATES,
    Nodes,
    Structure,
    busy_nodes,
    count_tokens,
    fired_nodes,
    gated_splits,
    percentile_threshold,
    single_pass,
    single_pass_strict,
)
from vgtok.tokenize.tokens import tokens_from_splits

extents = st.builds(Extent, st.integers(1, 400), st.integers(1, 400))
percentiles = st.floats(0, 100)
ranks = st.floats(0, 0.95)


def brute_descent(scores: Pyramid, structure: Structure, extent: Extent, percentile: float, rank: float) -> list[tuple]:
    """The paper's algorithm, one node at a time: leaves as (x, y, size) in depth-first order."""
    cells = scores.fine[: extent.rows(CELL), : extent.columns(CELL)]
    tau = np.percentile(cells.astype(np.float64), percentile)
    visited = []
    for row in range(extent.root_rows):
        for column in range(extent.root_columns):
            if scores.coarse[row, column] > tau:
                visited.append((float(structure.coarse[row, column]), 1, row, column))
                for r in (2 * row, 2 * row + 1):
                    for c in (2 * column, 2 * column + 1):
                        if scores.middle[r, c] > tau:
                            visited.append((float(structure.middle[r, c]), 0, r, c))
    # Least structure first, children before parents, then position.
    visited.sort()
    fired = {(level, row, column) for _, level, row, column in visited[: round(rank * len(visited))]}
    leaves = []
    for row in range(extent.root_rows):
        for column in range(extent.root_columns):
            if scores.coarse[row, column] <= tau or (1, row, column) in fired:
                leaves.append((64 * column, 64 * row, 64))
                continue
            for r in (2 * row, 2 * row + 1):
                for c in (2 * column, 2 * column + 1):
                    if scores.middle[r, c] <= tau or (0, r, c) in fired:
                        leaves.append((32 * c, 32 * r, 32))
                        continue
                    leaves += [(16 * x, 16 * y, 16) for y in (2 * r, 2 * r + 1) for x in (2 * c, 2 * c + 1)]
    return [leaf for leaf in leaves if leaf[0] < extent.width and leaf[1] < extent.height]


@given(extents, st.integers(0, 2**32 - 1), percentiles, ranks)
@settings(max_examples=150, deadline=None)
def test_tokens_equal_a_descent_node_by_node(extent: Extent, seed: int, percentile: float, rank: float) -> None:
    scores, structure = random_pyramid(extent, seed), structure_of(random_pyramid(extent, seed + 1))
    splits = gated_splits(busy_nodes(scores, extent, percentile), structure, rank)
    tokens = tokens_from_splits(splits, extent, (extent.height, extent.width))
    leaves = list(zip(tokens.x.tolist(), tokens.y.tolist(), tokens.sizes.tolist(), strict=True))
    assert leaves == brute_descent(scores, structure, extent, percentile, rank)
    assert len(leaves) == count_tokens(splits, extent)
    tokens.validate()


@given(extents, st.integers(0, 2**32 - 1), percentiles, ranks)
@settings(max_examples=60, deadline=None)
def test_count_identity_whatever_the_statistic(extent: Extent, seed: int, percentile: float, rank: float) -> None:
    whole = Extent(extent.root_rows * 64, extent.root_columns * 64)
    scores = random_pyramid(whole, seed)
    busy = busy_nodes(scores, whole, percentile)
    population = int(busy.middle.sum() + busy.coarse.sum())
    for statistic in range(3):
        structure = structure_of(random_pyramid(whole, seed + 1 + statistic))
        fired = fired_nodes(busy, structure, rank)
        stopped = round(rank * population)
        assert fired.middle.sum() + fired.coarse.sum() == stopped
        tokens = count_tokens(gated_splits(busy, structure, rank), whole)
        assert tokens == whole.roots + 3 * (population - stopped)


@given(extents, st.integers(0, 2**32 - 1), ranks)
@settings(max_examples=60, deadline=None)
def test_retention_falls_with_the_percentile(extent: Extent, seed: int, rank: float) -> None:
    scores, structure = random_pyramid(extent, seed, 50), structure_of(random_pyramid(extent, seed + 1))
    whole = Extent(extent.root_rows * 64, extent.root_columns * 64)
    for area, share in ((extent, 0.0), (whole, rank)):
        counts = [
            count_tokens(gated_splits(busy_nodes(scores, area, p), structure, share), area) for p in range(0, 101, 10)
        ]
        assert counts == sorted(counts, reverse=True)


@given(extents, st.integers(0, 2**32 - 1), percentiles)
@settings(max_examples=60, deadline=None)
def test_single_pass_keeps_nodes_below_its_own_percentile_whole(extent: Extent, seed: int, percentile: float) -> None:
    scores = random_pyramid(extent, seed)
    splits = single_pass(scores, extent, percentile)
    places = [(r, c) for r in range(extent.rows(NODE)) for c in range(extent.columns(NODE))]
    places.sort(key=lambda place: float(scores.middle[place]))
    whole = places[: round(percentile / 100 * len(places))]
    assert splits.middle.sum() == len(places) - len(whole)
    assert not any(splits.middle[place] for place in whole)
    tokens = tokens_from_splits(splits, extent, (extent.height, extent.width))
    tokens.validate()
    assert set(tokens.sizes.tolist()) <= {16, 32}


@given(extents, st.integers(0, 2**32 - 1), percentiles)
@settings(max_examples=60, deadline=None)
def test_strict_single_pass_keeps_whole_what_lies_below_numpys_percentile(
    extent: Extent, seed: int, percentile: float
) -> None:
    scores = random_pyramid(extent, seed)
    values = scores.middle[: extent.rows(NODE), : extent.columns(NODE)]
    splits = single_pass_strict(scores, extent, percentile)
    expected = values.astype(np.float64) >= np.percentile(values.astype(np.float64), percentile)
    np.testing.assert_array_equal(splits.middle[: extent.rows(NODE), : extent.columns(NODE)], expected)
    assert splits.middle.sum() == expected.sum()
    tokens_from_splits(splits, extent, (extent.height, extent.width)).validate()


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(0, 100, width=32)), percentiles)
def test_threshold_is_numpys_linear_percentile(values: np.ndarray, percentile: float) -> None:
    expected = np.percentile(values.astype(np.float64), percentile)
    np.testing.assert_allclose(percentile_threshold(values, percentile), expected, rtol=1e-9, atol=1e-9)


def test_a_percentile_outside_0_to_100_is_refused() -> None:
    with pytest.raises(InputError, match="percentile: 101"):
        percentile_threshold(np.zeros(3, dtype=np.float32), 101)


@pytest.mark.parametrize("name", GATES)
def test_every_gate_statistic_stops_the_flat_node_before_the_busy_one(name: str) -> None:
    image = np.full((128, 192, 3), 100, dtype=np.uint8)
    rng = np.random.default_rng(5)
    image[64:128, 64:128] = rng.integers(0, 256, (64, 64, 3))
    image[64:96, 64:96] //= 2
    structure = GATES[name](CanvasPixels(image))
    assert structure.coarse.shape == (2, 3)
    assert structure.middle.shape == (4, 6)
    busy = Nodes(np.zeros((4, 6), dtype=bool), np.zeros((2, 3), dtype=bool))
    busy.coarse[0, 0] = busy.coarse[1, 1] = True
    fired = fired_nodes(busy, structure, 0.5)
    assert fired.coarse.tolist() == [[True, False, False], [False, False, False]]


@pytest.mark.parametrize("name", [name for name in GATES if name.startswith("lambda_min") or name == "fine_element"])
def test_max_pooled_statistics_stop_the_children_of_a_stopped_root(name: str) -> None:
    structure = GATES[name](CanvasPixels(np.random.default_rng(6).integers(0, 256, (256, 320, 3), dtype=np.uint8)))
    np.testing.assert_array_equal(structure.coarse, parents(structure.middle))
