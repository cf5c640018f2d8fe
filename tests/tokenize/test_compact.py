"""The compact score: what it answers to, the root rule by brute force, and both budget modes on it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize.test_tokenizer import random_image
from vgtok import Tokenizer
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, children, parents
from vgtok.tokenize.scores import compact


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_root_is_worth_what_its_children_pay_for(height: int, width: int, seed: int) -> None:
    frame = CanvasPixels(random_image(height, width, seed))
    scores = compact(frame)
    np.testing.assert_array_equal(scores.middle, parents(scores.fine))
    for row, column in np.ndindex(scores.coarse.shape):
        four = scores.middle[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel().astype(float)
        best = max(sum(some) / (size + 1) for size in range(1, 5) for some in combinations(four, size))
        assert scores.coarse[row, column] == pytest.approx(best, rel=1e-6)
    for grid, size in zip(scores, (CELL, NODE, ROOT), strict=True):
        assert (grid[~frame.extent.valid(size)] == 0).all()


def test_a_blob_counts_and_a_line_of_any_slope_does_not() -> None:
    def score(draw: object) -> float:
        image = np.full((256, 256, 3), 80, dtype=np.uint8)
        rows, columns = np.ogrid[0:256, 0:256]
        image[draw(rows, columns)] = 190  # type: ignore[operator]
        return float(compact(CanvasPixels(image)).fine[4:12, 4:12].max())

    blob = score(lambda y, x: (abs(y - 128) < 4) & (abs(x - 128) < 4))
    lines = [score(lambda y, x, k=slope: abs((y - 128) - k * (x - 128)) < 4) for slope in (0.0, 0.4, 1.0, 2.5)]
    assert blob > 0
    assert max(lines) < 0.2 * blob


def test_company_supports_and_clutter_costs() -> None:
    ground = np.random.default_rng(0).integers(60, 100, (320, 320, 1), dtype=np.uint8).repeat(3, axis=2)
    alone = ground.copy()
    alone[156:164, 156:164] = 200
    group = alone.copy()
    for y, x in ((124, 124), (124, 188), (188, 124), (188, 188)):
        group[y : y + 8, x : x + 8] = 200
    rougher = alone.copy()
    rougher[96:224, 96:144][np.arange(128) % 12 < 4] = 150
    cell = (156 // CELL, 156 // CELL)
    of = {
        name: compact(CanvasPixels(image)).fine[cell]
        for name, image in (("alone", alone), ("group", group), ("rough", rougher))
    }
    assert of["group"] > 1.2 * of["alone"]
    assert of["rough"] < 0.9 * of["alone"]


@given(st.integers(64, 400), st.integers(64, 400), st.integers(0, 1000), st.floats(0, 100), st.sampled_from((0.0, 0.2)))
@settings(max_examples=40, deadline=None)
def test_percentile_and_exact_mode_agree_on_its_order(
    height: int, width: int, seed: int, percentile: float, rank: float
) -> None:
    image = random_image(height // 64 * 64, width // 64 * 64, seed)
    tokens = Tokenizer(percentile=percentile, scorer="compact", rank=rank, canvas="native")(image)
    tokens.validate()
    exact = Tokenizer(budget=max(tokens.retained, 1 / 16), scorer="compact", rank=rank, canvas="native")(image)
    exact.validate()
    assert len(exact) == len(tokens)


def test_no_node_comes_before_its_root() -> None:
    frame = CanvasPixels(random_image(512, 512, 7))
    scores = compact(frame)
    assert (scores.middle > children(scores.coarse)).any(), "a child alone is worth more than its root's split"
    tokens = Tokenizer(budget=0.3, scorer="compact", rank=0.0, canvas="native")(random_image(512, 512, 7))
    tokens.validate()
    assert abs(len(tokens) - 0.3 * tokens.dense) <= 2
