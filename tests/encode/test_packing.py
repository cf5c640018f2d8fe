"""Packing invariants: runs are windows, every token has one place, the scatter reaches every cell."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok.encode.config import configuration
from vgtok.encode.packing import pack
from vgtok.tokenize.geometry import CELL, Extent
from vgtok.tokenize.split import Nodes
from vgtok.tokenize.tokens import Tokens, tokens_from_splits


@st.composite
def partitions(draw: st.DrawFn) -> Tokens:
    height, width = draw(st.integers(1, 400)), draw(st.integers(1, 700))
    extent = Extent(height, width)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coarse = random.random(extent.grid_shape(64)) < draw(st.floats(0, 1))
    middle = (random.random(extent.grid_shape(32)) < 0.5) & coarse.repeat(2, 0).repeat(2, 1)
    return tokens_from_splits(Nodes(middle, coarse), extent, (height, width))


@given(st.lists(partitions(), min_size=1, max_size=3), st.sampled_from([8, 24]), st.sampled_from([1, 2]))
@settings(max_examples=80, deadline=None)
def test_runs_are_windows_and_every_cell_is_reached(tokens: list[Tokens], window: int, multiple: int) -> None:
    config = configuration("eva02-tiny", window=window, grid_multiple=multiple)
    packing = pack(tokens, config)
    assert len(packing) == sum(packing.windows.lengths) == sum(packing.images.lengths)
    if multiple == 1:
        assert len(packing) == sum(map(len, tokens))
    assert np.array_equal(np.sort(packing.slot), np.arange(len(packing)))
    owner = np.repeat(np.arange(len(packing.windows.lengths)), packing.windows.lengths)
    keys = np.stack([packing.image, packing.row // window, packing.column // window], axis=1)
    for run in range(len(packing.windows.lengths)):
        assert len(np.unique(keys[owner == run], axis=0)) == 1
    assert len(np.unique(keys, axis=0)) == len(packing.windows.lengths)
    # Cells plus padding of a window are always the whole window.
    rows, columns = packing.covered
    covered = np.bincount(owner, weights=rows * columns)
    assert np.array_equal(covered + packing.windows.padding, np.full(len(covered), window**2))
    # The scatter gives each cell the token that covers it.
    start = 0
    for number, (partition, grid) in enumerate(zip(tokens, packing.grids, strict=True)):
        places = packing.cells[start : start + grid[0] * grid[1]].reshape(grid)
        start += places.size
        assert (packing.image[places] == number).all()
        sizes = partition.cell_sizes()
        assert grid == tuple(-(-side // multiple) * multiple for side in sizes.shape)
        assert np.array_equal((packing.span[places] * CELL)[: sizes.shape[0], : sizes.shape[1]], sizes)
        assert (packing.row[places] == np.arange(grid[0])[:, None] // packing.span[places] * packing.span[places]).all()
    assert start == packing.cells.size


def test_prefix_tokens_open_each_image() -> None:
    extent = Extent(64, 128)
    whole = tokens_from_splits(Nodes(np.zeros((2, 4), bool), np.zeros((1, 2), bool)), extent, (64, 128))
    packing = pack([whole, whole], configuration("vit-tiny", prefix=3))
    assert packing.prefix.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert packing.slot.tolist() == [3, 4, 8, 9]
    assert packing.images.lengths == (5, 5)
    assert torch.tensor(packing.cells).unique().tolist() == [3, 4, 8, 9]


def test_scaled_padding_follows_the_tokens_kept() -> None:
    extent = Extent(64, 64)
    whole = tokens_from_splits(Nodes(np.zeros((2, 2), bool), np.zeros((1, 1), bool)), extent, (64, 64))
    counts = {
        rule: pack([whole], configuration("eva02-tiny", window=8, padding=rule)).windows.padding
        for rule in ("exact", "scaled", "dropped")
    }
    assert counts == {"exact": (48.0,), "scaled": (3.0,), "dropped": (0.0,)}
