"""A partition as the arrays an exported graph takes, every one of a shape that the export fixed.

All tokens a canvas can have lie in one numbering, cells first, then 32-px nodes, then roots: a token is its number, and
what the graph knows of it is read from constants. Inside windows tokens are moved to slots: windows by falling number
of tokens, each with as many slots as the one of its rank can ever need. numpy only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import pack
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent
from vgtok.tokenize.tokens import Tokens

SPANS = (CELL // CELL, NODE // CELL, ROOT // CELL)
"""Sides of the three kinds of tokens in cells, in the order of the numbering."""

_SHORTER = 0.75
"""A window of lower rank opens a shorter bucket once it needs at most this share of the slots."""


@dataclass(frozen=True)
class Bucket:
    """`windows` attention windows of `slots` slots each."""

    windows: int
    slots: int


def uniform_grids(extent: Extent) -> list[tuple[int, int]]:
    """(rows, columns) of the tokens of each span, where all tokens have it."""
    return [(extent.rows(span * CELL), extent.columns(span * CELL)) for span in SPANS]


def token_numbers(
    extent: Extent, row: NDArray[np.int64], column: NDArray[np.int64], span: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(N,) numbers of tokens given by first cell and side in cells, each (N,)."""
    grids = uniform_grids(extent)
    first = np.cumsum([0, *(rows * columns for rows, columns in grids[:-1])])
    kind = np.searchsorted(SPANS, span)
    across = np.array([columns for _, columns in grids])[kind]
    return np.asarray(first[kind] + row // span * across + column // span)


def window_buckets(extent: Extent, config: EncoderConfig, tokens: int | None) -> tuple[Bucket, ...]:
    """Slots that hold the windows of every partition of this extent into `tokens` tokens, or into any number.

    Of N tokens the window of rank k has at most N / k; so windows beyond the fullest few get fewer slots than they have
    cells. A window at a ragged edge needs one slot more, for its padding.
    """
    if config.window is None:
        return ()
    valid, roots = _window_cells(extent, config.window, CELL), _window_cells(extent, config.window, ROOT)
    padded = _padding_counts(valid, config) > 0
    needs = np.sort(valid + padded)[::-1]
    if tokens is not None:
        rank = np.arange(1, needs.size + 1)
        least = int(roots.min())
        needs = np.minimum(needs, (tokens + int(padded.sum()) - (needs.size - rank) * least) // rank)
    buckets: list[Bucket] = []
    for need in needs.tolist():
        if not buckets or need <= _SHORTER * buckets[-1].slots:
            buckets.append(Bucket(1, need))
        else:
            buckets[-1] = Bucket(buckets[-1].windows + 1, buckets[-1].slots)
    return tuple(buckets)


def graph_inputs(
    canvas: Canvas, tokens: Tokens, config: EncoderConfig, buckets: tuple[Bucket, ...]
) -> dict[str, NDArray[Any]]:
    """What a graph takes for one frame of H x W px, padded to whole roots, and its partition into N tokens.

    `frame` (H, W, 3) uint8 and `valid` (2,) its height and width without padding; `number` (N,) of each token; `cells`
    (rows * columns,) the place in the sequence of the token over each cell. With windows also `occupant` (S,) the token
    in each slot, N where it is a padded cell, `weight` (S,) how many cells that key stands for, 0 for an empty slot,
    and `slot` (N,) where each token went.
    """
    packing = pack([tokens], config)
    inputs: dict[str, NDArray[Any]] = {
        "frame": canvas.pixels,
        "valid": np.array([canvas.height, canvas.width], dtype=np.int64),
        "number": token_numbers(tokens.extent, packing.row, packing.column, packing.span),
        "cells": packing.cells,
    }
    if config.window is None:
        return inputs
    lengths, padding = np.array(packing.windows.lengths), np.array(packing.windows.padding)
    order = np.argsort(-(lengths + (padding > 0)), kind="stable")
    starts = np.empty(order.size, dtype=np.int64)
    slots = np.repeat([bucket.slots for bucket in buckets], [bucket.windows for bucket in buckets])
    starts[order] = np.cumsum(slots) - slots
    # Tokens are packed window by window: within a window, slots follow one another.
    inside = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    slot = np.repeat(starts, lengths) + inside
    occupant = np.full(int(slots.sum()), len(tokens), dtype=np.int64)
    occupant[slot] = np.arange(len(tokens))
    covered_rows, covered_columns = packing.covered
    weight = np.zeros(occupant.size, dtype=np.float32)
    weight[slot] = covered_rows * covered_columns if config.proportional else 1
    edge = padding > 0
    weight[(starts + lengths)[edge]] = padding[edge]
    return inputs | {"occupant": occupant, "weight": weight, "slot": slot}


def _window_cells(extent: Extent, window: int, size: int) -> NDArray[np.int64]:
    """(windows,) how many patches of `size` px each window of `window` cells a side has inside the extent."""
    per_window = window * CELL // size
    rows, columns = (
        np.minimum(per_window, count - np.arange(0, count, per_window))
        for count in (extent.rows(size), extent.columns(size))
    )
    return np.asarray(rows[:, None] * columns[None]).ravel()


def _padding_counts(valid: NDArray[np.int64], config: EncoderConfig) -> NDArray[np.int64]:
    """(windows,) zero cells that act as keys, before any scaling."""
    assert config.window is not None
    return np.zeros_like(valid) if config.padding == "dropped" else config.window**2 - valid
