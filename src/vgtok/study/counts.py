"""Token counts of several tokenizers over every image of a data set, each image read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgtok.parallel import map_with_progress
from vgtok.study.result import Inputs
from vgtok.tokenize.tokenizer import Tokenizer


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


def _count(job: _CountJob) -> list[int]:
    canvas = job.tokenizers[0].fit(job.path)
    return [*(len(tokenizer.partition(canvas)) for tokenizer in job.tokenizers), canvas.extent.dense]
