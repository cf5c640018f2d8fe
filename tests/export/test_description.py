"""Descriptions of exported files, there and back, and the input arrays of a graph."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.export.small_models import WINDOWED_VIT
from tests.tokenize.pyramids import random_pyramid
from vgtok import InputError
from vgtok.encode.config import EncoderConfig, configuration
from vgtok.encode.packing import pack
from vgtok.export.description import Bucket, Description, graph_inputs, token_numbers, uniform_grids, window_buckets
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.count import exact_splits, target_count
from vgtok.tokenize.geometry import CELL, ROOT, Extent
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

WHOLE = Description(
    "small", ("car",), 192, 128, 38, False, configuration("vit-tiny", **WINDOWED_VIT), (), "query", "none"
).to_properties()


def test_a_description_returns() -> None:
    assert Description.from_properties(WHOLE, "x.onnx").to_properties() == WHOLE


def test_the_license_of_a_file_by_an_earlier_release_is_read() -> None:
    properties = WHOLE | {"licence": WHOLE["license"]}
    del properties["license"]
    assert Description.from_properties(properties, "a.onnx").license == WHOLE["license"]


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": "[]"},
        {"encoder": "[" * 100_000},
        {"encoder": json.dumps(json.loads(WHOLE["encoder"]) | {"heads": 0})},
        {"encoder": json.dumps(json.loads(WHOLE["encoder"]) | {"window": "8"})},
        {"names": "5"},
        {"names": "[1]"},
        {"canvas": "0x-1"},
        {"tokens": "-4"},
        {"buckets": "[[1]]"},
        {"buckets": '[["a", null]]'},
        {"head": "mask"},
    ],
)
def test_a_damaged_description_is_one_line(changes: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"x\.onnx: damaged description"):
        Description.from_properties(WHOLE | changes, "x.onnx")


extents = st.builds(Extent, st.integers(1, 600), st.integers(1, 600))


def config(window: int | None = 8, padding: str = "exact") -> EncoderConfig:
    blocks = () if window is None else (0,)
    return EncoderConfig(
        8,
        1,
        1,
        8,
        window=window,
        global_blocks=blocks,
        prefix=0,
        padding=padding,
        proportional=True,  # type: ignore[arg-type]
    )


def partition(extent: Extent, budget: float, seed: int) -> Tokens:
    target = target_count(budget, extent, levels=3)
    splits = exact_splits(random_pyramid(extent, seed, 1000), None, extent, target, 0.0)
    return tokens_from_splits(splits, extent, (extent.height, extent.width))


def blank(extent: Extent) -> Canvas:
    pixels = np.zeros((extent.root_rows * ROOT, extent.root_columns * ROOT, 3), dtype=np.uint8)
    return Canvas(pixels, extent.height, extent.width, extent.height, extent.width)


@given(
    extents,
    st.floats(0.0625, 1.0),
    st.integers(0, 99),
    st.sampled_from((4, 8, 16)),
    st.sampled_from(("exact", "scaled", "dropped")),
)
@settings(max_examples=150, deadline=None)
def test_every_partition_of_a_count_fits_its_slots(
    extent: Extent, budget: float, seed: int, window: int, padding: str
) -> None:
    tokens = partition(extent, budget, seed)
    encoder = config(window, padding)
    for buckets in (window_buckets(extent, encoder, len(tokens)), window_buckets(extent, encoder, None)):
        inputs = graph_inputs(blank(extent), tokens, encoder, buckets)
        occupant, weight, slot = inputs["occupant"], inputs["weight"], inputs["slot"]
        assert occupant.size == sum(bucket.windows * bucket.slots for bucket in buckets)
        assert (occupant[slot] == np.arange(len(tokens))).all()
        assert (np.sort(occupant)[: len(tokens)] == np.arange(len(tokens))).all()
        # Every cell is in a key: those of tokens, and in all windows together the padding's.
        groups = pack([tokens], encoder).windows
        assert weight[occupant < len(tokens)].sum() == extent.dense
        assert weight[occupant == len(tokens)].sum() == pytest.approx(sum(groups.padding), rel=1e-5)
        # A window's tokens share one run of slots.
        ends = np.cumsum(np.repeat([b.slots for b in buckets], [b.windows for b in buckets]))
        home = np.searchsorted(ends, slot, side="right")
        lengths = np.array(groups.lengths)
        assert (np.unique(home, return_index=True)[0].size) == lengths.size
        assert (np.repeat(home[np.cumsum(lengths) - 1], lengths) == home).all()


@given(extents, st.floats(0.0625, 1.0), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_number_is_a_token(extent: Extent, budget: float, seed: int) -> None:
    tokens = partition(extent, budget, seed)
    row, column, span = (np.asarray(values, dtype=np.int64) // CELL for values in (tokens.y, tokens.x, tokens.sizes))
    numbers = token_numbers(extent, row, column, span)
    assert np.unique(numbers).size == len(tokens)
    sizes = [rows * columns for rows, columns in uniform_grids(extent)]
    kind = np.searchsorted(np.cumsum(sizes), numbers, side="right")
    assert (2**kind == span).all()
    within = numbers - (np.cumsum(sizes) - sizes)[kind]
    across = np.array([columns for _, columns in uniform_grids(extent)])[kind]
    assert (within // across == row // span).all()
    assert (within % across == column // span).all()


def test_windows_of_lower_rank_have_fewer_slots() -> None:
    """A 2048 x 1152 frame has 32 windows of 16 x 16 cells and 8 of half as many; 3687 tokens fill only a few."""
    extent = Extent(1152, 2048)
    assert window_buckets(extent, config(16), None) == (Bucket(32, 256), Bucket(8, 129))
    buckets = window_buckets(extent, config(16), 3687)
    assert sum(bucket.windows for bucket in buckets) == 40
    assert buckets[0].slots == 256
    assert buckets[-1].slots < 110
    assert window_buckets(extent, config(None), 3687) == ()
