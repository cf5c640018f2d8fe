"""The tokenizers of the studies by name, random controls, and several of them over every image of a data set.

An image is read and scored once for all tokenizers that share its canvas.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vgtok.study.paper import (
    COMPACT,
    DENSE,
    FUSED,
    FUSED_GATED,
    GATED,
    GATED_33,
    RANDOM,
    RANDOM_GATE,
    SCORE_GATE,
    SINGLE_PASS,
    TOP_HAT,
)
from vgtok.study.result import Inputs
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, CanvasPixels, Pyramid, nest
from vgtok.tokenize.scores import top_hat
from vgtok.tokenize.split import Structure
from vgtok.tokenize.tokenizer import PRESETS, Tokenizer
from vgtok.tokenize.tokens import Tokens, tokens_from_splits


@dataclass(frozen=True)
class RandomScore:
    """Random scores, seeded by the pixels of the image: the baseline that spends its budget anywhere."""

    def __call__(self, frame: CanvasPixels) -> Pyramid:
        """Return a random value per cell, pooled to nodes."""
        generator = np.random.default_rng(crc32(frame.rgb.tobytes()))
        return nest(generator.random(frame.extent.grid_shape(CELL), dtype=np.float32))


@dataclass(frozen=True)
class RandomGate:
    """The control of the gate: a random statistic, max-pooled like the real one, so that counts stay the same."""

    seed: int

    def __call__(self, frame: CanvasPixels) -> Structure:
        """Return a random value per cell, pooled to nodes."""
        cells = np.random.default_rng(self.seed).random(frame.extent.grid_shape(CELL), dtype=np.float32)
        return Structure(*nest(cells)[1:])


@dataclass(frozen=True)
class ScoreGate:
    """The other control of the gate: the score itself, so that the least busy of the busy nodes stop."""

    def __call__(self, frame: CanvasPixels) -> Structure:
        """Return the top-hat score of nodes and roots."""
        return Structure(*top_hat(frame)[1:])


SETTINGS: Mapping[str, Mapping[str, Any]] = {
    DENSE: PRESETS["top-hat"],
    SINGLE_PASS: PRESETS["single-pass"],
    TOP_HAT: PRESETS["top-hat"],
    GATED: PRESETS["top-hat+gate"],
    FUSED: {**PRESETS["top-hat"], "scorer": "fused"},
    FUSED_GATED: {**PRESETS["top-hat+gate"], "scorer": "fused"},
    COMPACT: PRESETS["compact"],
    GATED_33: {**PRESETS["top-hat+gate"], "gate": "lambda_min_auroc"},
    SCORE_GATE: {**PRESETS["top-hat+gate"], "gate": ScoreGate()},
    RANDOM_GATE: {**PRESETS["top-hat+gate"], "gate": RandomGate(0)},
    RANDOM: {**PRESETS["top-hat"], "scorer": RandomScore()},
}
"""Scorer, rank and splitter of every tokenizer, by the name results use."""


def token_counts(
    inputs: Inputs, tokenizers: Mapping[str, Tokenizer], label: str
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """Return the tokens per image of each tokenizer, (images,) each, and the (images,) dense counts.

    The tokenizers must share one canvas.
    """
    jobs = [_CountJob(path, tuple(tokenizers.values())) for path in inputs.data.images]
    table = np.array(list(inputs.map(_count, jobs, label)))
    return {name: table[:, i] for i, name in enumerate(tokenizers)}, table[:, -1]


def partitions(canvas: Canvas, tokenizers: Iterable[Tokenizer]) -> Iterator[Tokens]:
    """Yield the partition of one canvas by each tokenizer; compute every score and gate statistic once."""
    frame = CanvasPixels(canvas.image)
    scores: dict[object, Pyramid] = {}
    structures: dict[object, Structure | None] = {None: None}
    for tokenizer in tokenizers:
        gate = tokenizer.gate if tokenizer.gated else None
        if tokenizer.scorer not in scores:
            scores[tokenizer.scorer] = tokenizer.score(frame)
        if gate not in structures:
            structures[gate] = tokenizer.structure(frame)
        splits = tokenizer.split(scores[tokenizer.scorer], structures[gate], frame.extent)
        yield tokens_from_splits(splits, frame.extent, canvas.source_size)


@dataclass(frozen=True)
class _CountJob:
    path: Path
    tokenizers: tuple[Tokenizer, ...]


def _count(job: _CountJob) -> list[int]:
    canvas = job.tokenizers[0].to_canvas(job.path)
    return [*map(len, partitions(canvas, job.tokenizers)), canvas.extent.dense]
