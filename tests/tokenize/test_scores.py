"""Scores against plain implementations: the top-hat, its rivals, and the compact score."""

from itertools import combinations

import cv2
import numpy as np
import pytest
import scipy.ndimage
import skimage.filters.rank
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tokenize.test_tokenizer import random_image
from vgtok import Tokenizer
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, children, parents
from vgtok.tokenize.scores import SCORES, TOP_HAT_WIDTHS, compact, top_hat_cells
from vgtok.tokenize.structure import PAPER_FUSED, lambda_min_cells

images = hnp.arrays(np.uint8, st.tuples(st.integers(1, 150), st.integers(1, 150), st.just(3)))


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def brute_cells(pixels: np.ndarray) -> np.ndarray:
    rows, columns = -(-pixels.shape[0] // CELL), -(-pixels.shape[1] // CELL)
    blocks = [
        [pixels[r * CELL : (r + 1) * CELL, c * CELL : (c + 1) * CELL].max() for c in range(columns)]
        for r in range(rows)
    ]
    return np.array(blocks)


@given(images)
@settings(max_examples=40, deadline=None)
def test_luma_is_the_exact_fixed_point_sum(image: np.ndarray) -> None:
    wide = image.astype(np.int64)
    expected = 77 * wide[..., 0] + 150 * wide[..., 1] + 29 * wide[..., 2]
    luma = CanvasPixels(image).luma
    assert luma.dtype == np.uint16
    np.testing.assert_array_equal(luma, expected)


@given(images)
@settings(max_examples=40, deadline=None)
def test_the_six_top_hats_collapse_to_the_widest_pair(image: np.ndarray) -> None:
    luma = CanvasPixels(image).luma
    six = [
        cv2.morphologyEx(luma, kind, np.ones((width, width), np.uint8))
        for width in TOP_HAT_WIDTHS
        for kind in (cv2.MORPH_TOPHAT, cv2.MORPH_BLACKHAT)
    ]
    np.testing.assert_array_equal(np.max(six, axis=0), np.maximum(six[-2], six[-1]))
    cells = top_hat_cells(CanvasPixels(image))
    expected = brute_cells(np.max(six, axis=0))
    np.testing.assert_array_equal(cells[: expected.shape[0], : expected.shape[1]], expected)
    assert cells.sum() == expected.sum(), "padding scores nothing"


def test_top_hat_equals_scipy_inside_the_frame() -> None:
    luma = CanvasPixels(noise(120, 140)).luma
    # SciPy reflects at the border where OpenCV ignores what lies beyond it: compare away from the edge.
    white = scipy.ndimage.white_tophat(luma.astype(np.int64), size=17)
    black = scipy.ndimage.black_tophat(luma.astype(np.int64), size=17)
    cells = top_hat_cells(CanvasPixels(noise(120, 140)))
    inner = np.s_[32:96, 32:112]
    expected = brute_cells(np.maximum(white, black)[inner])
    np.testing.assert_array_equal(cells[2:6, 2:7], expected)


def test_response_does_not_depend_on_the_size_of_a_small_target() -> None:
    scores = []
    for side in (2, 5, 11, 16):
        image = np.full((128, 128, 3), 60, dtype=np.uint8)
        image[64 : 64 + side, 64 : 64 + side] = 180
        scores.append(top_hat_cells(CanvasPixels(image)).max())
    assert len(set(scores)) == 1
    assert scores[0] == (180 - 60) * 256
    image[50:80, 50:80] = 180
    assert top_hat_cells(CanvasPixels(image)).max() == 0


def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    image = noise(700, 90)
    whole = {name: SCORES[name](CanvasPixels(image)).fine for name in ("tophat", "lambda_min")}
    monkeypatch.setattr("vgtok.tokenize.geometry._BAND_PIXELS", 64 * 90)
    for name, fine in whole.items():
        np.testing.assert_array_equal(SCORES[name](CanvasPixels(image)).fine, fine)


@pytest.mark.parametrize("name", [name for name in SCORES if name not in ("upsample_mse", "compact")])
@given(image=images)
@settings(max_examples=15, deadline=None)
def test_a_node_scores_the_best_of_its_children_and_padding_nothing(name: str, image: np.ndarray) -> None:
    frame = CanvasPixels(image)
    scores = SCORES[name](frame)
    np.testing.assert_array_equal(scores.middle, parents(scores.fine))
    np.testing.assert_array_equal(scores.coarse, parents(scores.middle))
    assert np.isfinite(scores.fine).all()
    assert scores.fine.min() >= 0
    for grid, size in zip(scores, (CELL, NODE, ROOT), strict=True):
        assert (grid[~frame.extent.valid(size)] == 0).all()


@pytest.mark.parametrize("name", SCORES)
def test_a_flat_image_scores_zero_everywhere(name: str) -> None:
    flat = np.full((100, 130, 3), 90, dtype=np.uint8)
    for grid in SCORES[name](CanvasPixels(flat)):
        assert np.abs(grid).max() <= 1e-6


@pytest.mark.parametrize("name", SCORES)
def test_a_lone_target_scores_highest_where_it_is(name: str) -> None:
    image = np.full((192, 256, 3), 90, dtype=np.uint8)
    image[100:106, 148:154] = (220, 60, 140)
    coarse = SCORES[name](CanvasPixels(image)).coarse
    assert np.unravel_index(coarse.argmax(), coarse.shape) == (1, 2)


def test_entropy_equals_scikit_image() -> None:
    image = noise(64, 96)
    bins = (CanvasPixels(image).luma >> 11).astype(np.uint8)
    # A 16-px footprint centered on a cell is that cell alone.
    local = skimage.filters.rank.entropy(bins, np.ones((16, 16), dtype=np.uint8))
    np.testing.assert_allclose(SCORES["entropy"](CanvasPixels(image)).fine[:4, :6], local[8::16, 8::16], atol=1e-6)


def test_upsample_mse_is_zero_on_the_finest_grid_only() -> None:
    scores = SCORES["upsample_mse"](CanvasPixels(noise(128, 128)))
    assert scores.fine.max() == 0
    assert scores.middle.min() > 0
    assert scores.coarse.min() > 0


def test_fused_is_the_sum_of_both_statistics_scaled_to_one() -> None:
    frame = CanvasPixels(noise(128, 192))
    parts = [top_hat_cells(frame), lambda_min_cells(frame, PAPER_FUSED)]
    np.testing.assert_allclose(SCORES["fused"](frame).fine, sum(part / part.max() for part in parts), rtol=1e-6)


def test_children_undo_parents() -> None:
    grid = np.random.default_rng(1).random((4, 6), dtype=np.float32)
    np.testing.assert_array_equal(parents(children(grid)), grid)


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


def test_the_inside_of_a_wide_smooth_object_counts_and_plain_ground_does_not() -> None:
    image = np.full((384, 384, 3), 80, dtype=np.uint8)
    # A bus: every line fits into it, so nothing of it is compact but its corners.
    image[176:206, 64:320] = 190
    scores = compact(CanvasPixels(image)).fine
    inside = scores[184 // CELL, 160 // CELL : 224 // CELL]
    assert (inside > 0.1 * scores.max()).all()
    assert (scores[:6] == 0).all()


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
