"""One canvas through each of the three executions, for evaluation: what benchmarks and studies call."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vgtok.encode.dense import encode_control, encode_dense
from vgtok.encode.encoder import Encoder, Features
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.tokenizer import Tokenizer


def canvas_pixels(canvas: Canvas, encoder: Encoder) -> Tensor:
    """The valid pixels as (3, H, W) uint8 on the encoder's device: a view where that is the host."""
    return torch.from_numpy(canvas.image).permute(2, 0, 1).to(encoder.embedding.table.device)


def run_dense(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Every cell a token: (D, rows, columns). The tokenizer is not asked."""
    with torch.inference_mode():
        return encode_dense(encoder, canvas_pixels(canvas, encoder)[None]).maps[0]


def run_packed(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Tokenize and run packed: (D, rows, columns)."""
    with torch.inference_mode():
        features: Features = encoder([canvas_pixels(canvas, encoder)], [tokenizer.partition(canvas)])
        return features.maps[0]


def run_control(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Tokenize, scatter at once, run every cell: (D, rows, columns)."""
    with torch.inference_mode():
        return encode_control(encoder, [canvas_pixels(canvas, encoder)], [tokenizer.partition(canvas)]).maps[0]


EXECUTIONS: dict[str, Callable[[Encoder, Canvas, Tokenizer], Tensor]] = {
    "dense": run_dense,
    "packed": run_packed,
    "control": run_control,
}
"""The three executions by name."""


def cell_similarity(features: Tensor, reference: Tensor) -> NDArray[np.float32]:
    """Cosine similarity of two (D, rows, columns) maps, cell by cell: (rows, columns)."""
    return np.asarray(functional.cosine_similarity(features, reference, dim=0).cpu().numpy())
