"""A frame read in parts has the partition of the whole frame; what holds no data is out of ranks and budgets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import vgtok.slicing.frames as frames
from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.slicing.frames import ArrayFrame, partition_frame
from vgtok.tokenize import SCORES, Tokenizer
from vgtok.tokenize.geometry import CELL


def holed(pixels: NDArray[np.uint8], valid: NDArray[np.bool_]) -> ArrayFrame:
    """A frame of which a part holds no data."""
    return ArrayFrame(np.where(valid[:, :, None], pixels, 0).astype(np.uint8), valid)


@pytest.fixture(scope="module")
def scene() -> NDArray[np.uint8]:
    return render_scene(seed=5, width=900, height=700).pixels


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_PART", 256)


@pytest.mark.parametrize("scorer", sorted(set(SCORES) - {"fused", "upsample_mse"}))
def test_the_partition_is_that_of_the_whole_frame(scorer: str, scene: NDArray[np.uint8]) -> None:
    tokenizer = Tokenizer(budget=0.3, scorer=scorer, canvas="native")
    _assert_equal(tokenizer, scene)


@pytest.mark.parametrize("gate", ["lambda_min_full", "lambda_min_auroc", "surround", "homogeneity", "fine_element"])
def test_every_gate_is_that_of_the_whole_frame(gate: str, scene: NDArray[np.uint8]) -> None:
    _assert_equal(Tokenizer(percentile=70, gate=gate, canvas="native"), scene)


@settings(max_examples=15)
@given(st.integers(1, 700), st.integers(1, 700), st.floats(0.07, 1.0), st.sampled_from(["quadtree", "single_pass"]))
def test_any_size_and_budget(height: int, width: int, budget: float, splitter: str) -> None:
    noise = np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    budget = max(budget, 0.25) if splitter == "single_pass" else budget
    _assert_equal(Tokenizer(budget=budget, splitter=splitter, canvas="native"), noise)  # type: ignore[arg-type]


def _assert_equal(tokenizer: Tokenizer, pixels: NDArray[np.uint8]) -> None:
    partition = partition_frame(ArrayFrame(pixels), tokenizer)
    expected = tokenizer(pixels)
    np.testing.assert_array_equal(partition.tokens.boxes, expected.boxes)
    assert partition.tokens.data is None
    # A part that starts on a root has the tokens that lie in it.
    x, y = ((side - 1) // 128 * 64 for side in (pixels.shape[1], pixels.shape[0]))
    part = partition.part(x, y, pixels.shape[0] - y, pixels.shape[1] - x)
    part.validate()
    np.testing.assert_array_equal(part.boxes, expected.crop(x, y, *pixels.shape[:2]).boxes)


def test_without_data_is_as_cut_off(scene: NDArray[np.uint8]) -> None:
    """Nodata right of whole roots: tokens, budget and threshold are those of the frame without that part."""
    valid = np.zeros(scene.shape[:2], dtype=np.bool_)
    valid[:, :512] = True
    # The edge of the frame repeats its last pixels, as does the edge of the data.
    for tokenizer in (Tokenizer(budget=0.3, canvas="native"), Tokenizer(percentile=80, canvas="native")):
        tokens = partition_frame(holed(scene, valid), tokenizer).tokens
        tokens.validate()
        expected = tokenizer(np.ascontiguousarray(scene[:, :512]))
        assert tokens.dense == expected.dense
        assert abs(len(tokens) - len(expected)) <= (0 if tokenizer.budget else 0.02 * len(expected))
        assert (tokens.x < 512).all()
        same = {*map(tuple, tokens.boxes.tolist())} & {*map(tuple, expected.boxes.tolist())}
        assert len(same) > 0.95 * len(expected)


@settings(max_examples=25)
@given(st.integers(1, 330), st.integers(1, 330), st.floats(0.0625, 1.0), st.integers(0, 2**32 - 1), st.booleans())
def test_counts_with_holes_are_exact(height: int, width: int, budget: float, seed: int, single: bool) -> None:
    random = np.random.default_rng(seed)
    roots = random.random((-(-height // 64), -(-width // 64))) < 0.6
    if not roots.any():
        roots[0, 0] = True
    valid = np.repeat(np.repeat(roots, 64, axis=0), 64, axis=1)[:height, :width]
    pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    splitter = "single_pass" if single else "quadtree"
    tokenizer = Tokenizer(budget=max(budget, 0.25) if single else budget, splitter=splitter, canvas="native")  # type: ignore[arg-type]
    tokens = partition_frame(holed(pixels, valid), tokenizer).tokens
    tokens.validate()
    cells = valid[::CELL, ::CELL]
    assert tokens.dense == cells.sum()
    # One split more or less is 3 tokens; at most all patches at their smallest or largest.
    assert tokenizer.budget is not None
    least = roots.sum() if not single else np.asarray(valid[::32, ::32]).sum()
    wanted = min(max(tokenizer.budget * cells.sum(), least), cells.sum())
    assert abs(len(tokens) - wanted) <= 2


def test_the_edge_of_the_data_shows_no_contrast() -> None:
    pixels = np.full((512, 512, 3), 200, dtype=np.uint8)
    down, across = np.mgrid[:512, :512]
    valid = down + 2 * across > 400
    partition = partition_frame(holed(pixels, valid), Tokenizer(percentile=50, canvas="native"))
    assert not partition.splits.coarse.any()
    assert partition.flat.all()
    assert not partition.shows_something(0, 0, 512, 512)


def test_flat_roots_are_where_luma_hardly_varies() -> None:
    pixels = np.full((128, 256, 3), 90, dtype=np.uint8)
    pixels[70:74, 140:150] = 101
    pixels[10:14, 10:20] = 110
    partition = partition_frame(ArrayFrame(pixels), Tokenizer(budget=0.5, canvas="native"))
    np.testing.assert_array_equal(partition.flat, [[False, True, True, True], [True] * 4])
    assert partition.shows_something(0, 0, 128, 128)
    assert not partition.shows_something(64, 64, 256, 128)


def test_nothing_but_nodata_and_scores_that_need_the_whole_are_refused() -> None:
    pixels = np.zeros((100, 100, 3), dtype=np.uint8)
    with pytest.raises(InputError, match="every pixel is nodata"):
        partition_frame(holed(pixels, np.zeros((100, 100), dtype=np.bool_)), Tokenizer(budget=0.4))
    with pytest.raises(InputError, match="fused"):
        partition_frame(ArrayFrame(pixels), Tokenizer(budget=0.4, scorer="fused"))
