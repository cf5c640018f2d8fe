"""Run the encoder on the whole grid: the dense reference, a control, and all modes by name.

The code shares no attention path with the packed encoder, so that their equality is a test of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vgtok.encode.attention import rotation
from vgtok.encode.block import Attention, Route, draw_survivors
from vgtok.encode.config import EncoderConfig
from vgtok.encode.embed import lay_out, normalize, project_grid
from vgtok.encode.encoder import Encoder, Features, valid_areas
from vgtok.encode.packing import pack
from vgtok.errors import InputError
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens


def encode_dense(encoder: Encoder, images: Tensor) -> Features:
    """Run (B, 3, H, W) uint8 RGB or normalized images with every cell a token."""
    patch = encoder.config.patch
    height, width = images.shape[2:]
    pixels = normalize(images, encoder.config, encoder.embedding.table.dtype)
    multiple = patch * encoder.config.grid_multiple
    if height % multiple or width % multiple:
        pixels = functional.pad(pixels, (0, -width % multiple, 0, -height % multiple))
    grid = (pixels.shape[2] // patch, pixels.shape[3] // patch)
    cells = project_grid(encoder.embedding, pixels)
    del pixels
    return _run_grid(encoder, cells, grid)


def encode_control(encoder: Encoder, images: Sequence[Tensor], tokens: Sequence[Tokens]) -> Features:
    """Embed the tokens of B (3, H, W) images of one size, expand them to cells at once, then run every cell."""
    images = valid_areas(images, tokens, encoder.config)
    packing = pack(tokens, encoder.config)
    if len(set(packing.grids)) > 1:
        raise InputError(f"images: grids of {sorted(set(packing.grids))} cells; the control takes one size at a time")
    layout = lay_out(packing, encoder.config, encoder.embedding.table.device)
    sequence = encoder.embedding(images, packing, layout)
    # (B * rows * columns, D) to (B, rows * columns, D)
    cells = torch.unflatten(sequence.index_select(0, layout.cells), 0, (len(images), -1))
    del sequence
    return _run_grid(encoder, cells, packing.grids[0])


def _run_grid(encoder: Encoder, cells: Tensor, grid: tuple[int, int]) -> Features:
    """Run the blocks on (B, rows * columns, D) embedded cells."""
    config = encoder.config
    x = cells
    if config.prefix:
        x = torch.cat([encoder.embedding.prefix.expand(len(cells), -1, -1), cells], dim=1)
    del cells
    over_images = GridRoute(config, grid, None, grid_rotations(config, grid, x.device))
    window = config.window
    inside_windows = over_images
    if window is not None:
        inside_windows = GridRoute(config, grid, window, grid_rotations(config, (window, window), x.device))
    for number, block in enumerate(encoder.blocks):
        x = block(x, over_images if config.is_global(number) else inside_windows)
    x = encoder.out_norm(x)
    # (B, rows * columns, D) to (B, D, rows, columns)
    maps = torch.unflatten(x[:, config.prefix :], 1, grid).permute(0, 3, 1, 2)
    return Features(tuple(maps), x[:, : config.prefix])


def grid_rotations(config: EncoderConfig, grid: tuple[int, int], device: torch.device) -> Tensor | None:
    """Return (P + rows * columns, head_dim / 2) rotations of a whole grid or window."""
    if not config.rope:
        return None
    shares = torch.meshgrid(*(torch.arange(side, device=device) / side for side in grid), indexing="ij")
    turned = rotation(shares[0].flatten(), shares[1].flatten(), config.head_dim)
    return torch.cat([turned.new_ones(config.prefix, turned.shape[1]), turned])


@dataclass(frozen=True)
class GridRoute(Route):
    """Attention over a (rows, columns) grid of cells, whole or in zero-padded windows."""

    config: EncoderConfig
    grid: tuple[int, int]
    window: int | None
    rotations: Tensor | None

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """(B, P + rows * columns, D) to the same."""
        if self.window is None:
            return self._attended(attention, x)
        rows, columns = self.grid
        down, across = -(-rows // self.window), -(-columns // self.window)
        # (B, rows, columns, D), padded, to (B, down, window, across, window, D)
        cells = torch.unflatten(x, 1, self.grid)
        cells = functional.pad(cells, (0, 0, 0, across * self.window - columns, 0, down * self.window - rows))
        cells = torch.unflatten(torch.unflatten(cells, 2, (across, self.window)), 1, (down, self.window))
        # (B * down * across, window * window, D)
        windows = cells.transpose(2, 3).flatten(3, 4).flatten(0, 2)
        del cells
        out = self._attended(attention, windows)
        # ... and back to (B, rows * columns, D) without the padding
        out = torch.unflatten(torch.unflatten(out, 0, (-1, down, across)), 3, (self.window, self.window))
        return out.transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, :rows, :columns].flatten(1, 2)

    def _attended(self, attention: Attention, x: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D); all L attend to each other."""
        q, k, v = (part.transpose(1, 2) for part in attention.project(x, self.rotations))
        return attention.merge(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2))

    def survivors(self, branch: Tensor, rate: float) -> Tensor:
        """Draw (B, 1, 1) drop-path factors for the (B, L, D) branch."""
        return draw_survivors(len(branch), rate, branch)[:, None, None]


# One canvas through an encoder, by the name of the mode.


def canvas_pixels(canvas: Canvas, encoder: Encoder) -> Tensor:
    """Return the valid pixels as (3, H, W) uint8 on the encoder's device; a view on the CPU."""
    return torch.from_numpy(canvas.image).permute(2, 0, 1).to(encoder.embedding.table.device)


def run_dense(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Run every cell as a token: (D, rows, columns). The tokenizer is not used."""
    with torch.inference_mode():
        return encode_dense(encoder, canvas_pixels(canvas, encoder)[None]).maps[0]


def run_packed(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Tokenize and run packed: (D, rows, columns)."""
    with torch.inference_mode():
        features: Features = encoder([canvas_pixels(canvas, encoder)], [tokenizer.partition(canvas)])
        return features.maps[0]


def run_control(encoder: Encoder, canvas: Canvas, tokenizer: Tokenizer) -> Tensor:
    """Tokenize, expand to cells at once, run every cell: (D, rows, columns)."""
    with torch.inference_mode():
        return encode_control(encoder, [canvas_pixels(canvas, encoder)], [tokenizer.partition(canvas)]).maps[0]


RUN_MODES: dict[str, Callable[[Encoder, Canvas, Tokenizer], Tensor]] = {
    "dense": run_dense,
    "packed": run_packed,
    "control": run_control,
}
"""The three modes by name."""


def cell_similarity(features: Tensor, reference: Tensor) -> NDArray[np.float32]:
    """Return the cosine similarity of two (D, rows, columns) maps per cell, (rows, columns)."""
    return np.asarray(functional.cosine_similarity(features, reference, dim=0).cpu().numpy())
