"""Several tokenizers over every image of a data set, each image read and scored once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgtok.parallel import map_with_progress
from vgtok.study.result import Inputs
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CanvasPixels, Pyramid
from vgtok.tokenize.split import Structure
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens, tokens_from_splits


@dataclass(frozen=True)
class _CountJob:
    path: Path
    tokenizers: tuple[Tokenizer, ...]


def token_counts(
    inputs: Inputs, tokenizers: Mapping[str, Tokenizer], label: str
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """Tokens per image of each tokenizer, (images,) each, and the (images,) dense counts.

    The tokenizers must share one canvas: the first one's.
    """
    jobs = [_CountJob(path, tuple(tokenizers.values())) for path in inputs.data.images]
    table = np.array(list(map_with_progress(_count, jobs, workers=inputs.workers, label=label)))
    return {name: table[:, i] for i, name in enumerate(tokenizers)}, table[:, -1]


def partitions(canvas: Canvas, tokenizers: Iterable[Tokenizer]) -> Iterator[Tokens]:
    """The partition of one canvas by each tokenizer, every score and gate statistic computed once."""
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
        yield tokens_from_splits(splits, frame.extent, (canvas.source_height, canvas.source_width))


def _count(job: _CountJob) -> list[int]:
    canvas = job.tokenizers[0].to_canvas(job.path)
    return [*map(len, partitions(canvas, job.tokenizers)), canvas.extent.dense]
