"""The description stored in an exported file, and the input arrays of its graph; no torch.

A canvas and its partition enter, arrays of fixed shape leave: tokens by number, attention windows as slots.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_TOKENIZER
from vgtok.detect.config import Head
from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import pack
from vgtok.errors import InputError, check_fields
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent
from vgtok.tokenize.tokenizer import preset
from vgtok.tokenize.tokens import Tokens

SPANS = (CELL // CELL, NODE // CELL, ROOT // CELL)
"""Sides of the three sizes of tokens in cells, in the order in which tokens are numbered."""

_SHORTER = 0.75
"""A new, shorter bucket starts once a window needs at most this share of the current one's slots."""


@dataclass(frozen=True)
class Bucket:
    """`windows` attention windows of `slots` slots each."""

    windows: int
    slots: int


def uniform_grids(extent: Extent) -> list[tuple[int, int]]:
    """Return the (rows, columns) of the uniform partition of each span."""
    return [(extent.rows(span * CELL), extent.columns(span * CELL)) for span in SPANS]


def token_numbers(
    extent: Extent, row: NDArray[np.int64], column: NDArray[np.int64], span: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the (N,) numbers of tokens given by their first cell and side in cells, each (N,)."""
    grids = uniform_grids(extent)
    first = np.cumsum([0, *(rows * columns for rows, columns in grids[:-1])])
    kind = np.searchsorted(SPANS, span)
    across = np.array([columns for _, columns in grids])[kind]
    return np.asarray(first[kind] + row // span * across + column // span)


def window_buckets(extent: Extent, config: EncoderConfig, tokens: int | None) -> tuple[Bucket, ...]:
    """Return slots for the windows of every partition of this extent into `tokens` tokens, or into any number.

    Of N tokens the k-th fullest window has at most N / k, so all but the fullest windows get fewer slots than they have
    cells. A window with padding needs one more slot.
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
    """Return the inputs of a graph for one canvas of H x W px, padded to whole roots, and its partition into N tokens.

    | array      | shape              | content                                                                 |
    |------------|--------------------|-------------------------------------------------------------------------|
    | `frame`    | (H, W, 3) uint8    | pixels                                                                  |
    | `valid`    | (2,)               | height and width without padding                                        |
    | `number`   | (N,)               | number of each token                                                    |
    | `cells`    | (rows * columns,)  | place in the sequence of the token over each cell                       |
    | `occupant` | (S,), with windows | token in each slot, N for padding                                       |
    | `weight`   | (S,), with windows | number of cells the key of a slot stands for, 0 for an empty slot       |
    | `slot`     | (N,), with windows | slot of each token                                                      |
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
    # Tokens are packed window by window; the slots of a window are consecutive.
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
    """Return the (windows,) number of patches of `size` px inside the extent, for windows of `window` cells a side."""
    per_window = window * CELL // size
    rows, columns = (
        np.minimum(per_window, count - np.arange(0, count, per_window))
        for count in (extent.rows(size), extent.columns(size))
    )
    return np.asarray(rows[:, None] * columns[None]).ravel()


def _padding_counts(valid: NDArray[np.int64], config: EncoderConfig) -> NDArray[np.int64]:
    """Return the (windows,) number of padded cells that act as keys, before any scaling."""
    assert config.window is not None
    return np.zeros_like(valid) if config.padding == "dropped" else config.window**2 - valid


FORMAT = "vgtok-onnx"
FORMAT_VERSION = "1"


@dataclass(frozen=True)
class Description:
    """Description of one exported graph.

    | field              | meaning                                                       |
    |--------------------|---------------------------------------------------------------|
    | `model`            | name of the exported model                                    |
    | `names`            | class names, in label order                                   |
    | `width`, `height`  | canvas in pixels                                              |
    | `tokens`           | number of tokens per image, the default if `dynamic`          |
    | `dynamic`          | whether the graph takes any number of tokens                  |
    | `encoder`          | configuration of the encoder                                  |
    | `buckets`          | slots of the attention windows                                |
    | `head`             | head whose candidates the graph returns                       |
    | `license`          | license note of the model                                     |
    | `atss_suppression` | suppression of the ATSS head, "hard" or "soft"                |
    | `precision`        | precision of the matrix products, "float32" or "int8"         |
    | `tokenizer`        | name of the tokenizer that images are read by                 |
    | `sparse_head`      | whether the head leaves out unsplit roots at its finest level |
    """

    model: str
    names: tuple[str, ...]
    width: int
    height: int
    tokens: int
    dynamic: bool
    encoder: EncoderConfig
    buckets: tuple[Bucket, ...]
    head: Head
    license: str
    atss_suppression: str = "hard"
    precision: str = "float32"
    tokenizer: str = DEFAULT_TOKENIZER
    sparse_head: bool = False

    def __post_init__(self) -> None:
        check_fields(self, positive=("width", "height", "tokens"))
        preset(self.tokenizer)
        for bucket in self.buckets:
            check_fields(bucket)

    @property
    def extent(self) -> Extent:
        """Valid area of the canvas."""
        return Extent(self.height, self.width)

    def to_properties(self) -> dict[str, str]:
        """Return the metadata of the file, text by name; the graph applies mean and std, on a scale of 0 to 255."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "model": self.model,
            "names": json.dumps(self.names),
            "canvas": f"{self.width}x{self.height}",
            "tokens": str(self.tokens),
            "dynamic": json.dumps(self.dynamic),
            "mean": json.dumps(self.encoder.mean),
            "std": json.dumps(self.encoder.std),
            "encoder": json.dumps(asdict(self.encoder)),
            "buckets": json.dumps([[bucket.windows, bucket.slots] for bucket in self.buckets]),
            "head": self.head,
            "license": self.license,
            "atss_suppression": self.atss_suppression,
            "precision": self.precision,
            "tokenizer": self.tokenizer,
            "sparse_head": json.dumps(self.sparse_head),
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], origin: str) -> "Description":
        """Read a description from the metadata of a file; errors call the file `origin`."""
        if properties.get("format") != FORMAT:
            raise InputError(f"{origin}: not written by 'vgtok export onnx', so its inputs are unknown")
        if properties.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{origin}: format {properties.get('version')}, but this release reads {FORMAT_VERSION}; export it anew"
            )
        try:
            width, _, height = properties["canvas"].partition("x")
            encoder: dict[str, Any] = json.loads(properties["encoder"])
            # JSON has lists where the configuration has tuples.
            settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in encoder.items()}
            return cls(
                model=properties["model"],
                names=tuple(_listed(properties["names"])),
                width=int(width),
                height=int(height),
                tokens=int(properties["tokens"]),
                dynamic=bool(json.loads(properties["dynamic"])),
                encoder=EncoderConfig(**settings),
                buckets=tuple(Bucket(*pair) for pair in _listed(properties["buckets"])),
                head=cast(Head, properties["head"]),
                license=properties["license"] if "license" in properties else properties["licence"],
                atss_suppression=properties.get("atss_suppression", "hard"),
                precision=properties.get("precision", "float32"),
                tokenizer=properties.get("tokenizer", DEFAULT_TOKENIZER),
                sparse_head=bool(json.loads(properties.get("sparse_head", "false"))),
            )
        except InputError as error:
            raise InputError(f"{origin}: damaged description ({error}); export it anew") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"{origin}: damaged description ({error!r}); export it anew") from None


def _listed(text: str) -> list[Any]:
    values = json.loads(text)
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} instead of a list")
    return values
