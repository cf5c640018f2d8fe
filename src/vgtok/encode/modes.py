"""Run an encoder dense, packed or as a control, by name, and count what each of these costs.

The dense mode is the reference the packed one is tested against.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vgtok.encode.attention import rotation
from vgtok.encode.config import EncoderConfig
from vgtok.encode.embed import lay_out, normalize, project_grid
from vgtok.encode.encoder import Attention, Encoder, Features, Route, draw_survivors, valid_areas
from vgtok.encode.packing import Groups, Packing, pack
from vgtok.errors import InputError
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL
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


class Flops(NamedTuple):
    """FLOPs by part: before the first block, in linear maps in and behind the blocks, and in attention proper."""

    embedding: int
    linear: int
    attention: int


def encoder_flops(mode: str, config: EncoderConfig, tokens: Tokens) -> Flops:
    """Count the FLOPs of mode 'dense', 'packed' or 'control' for one image with this partition, in plain modules."""
    rows, columns = config.grid_of(tokens.extent)
    if mode == "dense":
        return Flops(rows * columns * _patch_flops(config), *_grid_flops(config, rows, columns))
    packing = pack([tokens], config)
    blocks = _packed_flops(config, packing) if mode == "packed" else _grid_flops(config, rows, columns)
    return Flops(_embedding_flops(config, packing), *blocks)


def _patch_flops(config: EncoderConfig) -> int:
    return 2 * 3 * config.patch**2 * config.dim


def _embedding_flops(config: EncoderConfig, packing: Packing) -> int:
    """Projection of the tokens and fusion; reading the position table is not counted."""
    total = packing.slot.size * _patch_flops(config)
    for size in config.fusion:
        span = size // CELL
        tokens = int((packing.span == span).sum())
        total += tokens * span * span * _patch_flops(config)
        while span > 1:
            span //= 2
            total += tokens * span * span * 2 * 4 * config.dim**2
        total += tokens * 2 * config.dim**2
    return total


def _spread_flops(config: EncoderConfig, packing: Packing) -> int:
    """Coarse tokens through the low-rank map that tells their cells apart."""
    cells = packing.span[packing.span > 1] ** 2
    return int((2 * config.spread * config.dim * (1 + cells)).sum())


def _projection_flops(config: EncoderConfig) -> int:
    """One token through q, k, v and the output projection."""
    return 2 * 4 * config.dim**2


def _mlp_flops(config: EncoderConfig) -> int:
    """One token through the MLP."""
    return 2 * (3 if config.mlp == "swiglu" else 2) * config.dim * config.hidden


def _packed_flops(config: EncoderConfig, packing: Packing) -> tuple[int, int]:
    linear = config.depth * len(packing) * (_projection_flops(config) + _mlp_flops(config))
    linear += _spread_flops(config, packing)
    groups = (packing.images if config.is_global(block) else packing.windows for block in range(config.depth))
    return linear, sum(_attention_flops(config, group) for group in groups)


def _attention_flops(config: EncoderConfig, groups: Groups) -> int:
    """Logits and weighted sums of every query with every key of its group, virtual key included."""
    lengths = np.array(groups.lengths, dtype=np.int64)
    keys = lengths + (np.array(groups.padding) > 0)
    return int((4 * lengths * keys * config.dim).sum())


def _grid_flops(config: EncoderConfig, rows: int, columns: int) -> tuple[int, int]:
    """Blocks on every cell; projections and attention run on padded windows."""
    cells = rows * columns + config.prefix
    linear = attention = 0
    for block in range(config.depth):
        windows, inside = 1, cells
        if not config.is_global(block):
            assert config.window is not None
            windows = -(-rows // config.window) * -(-columns // config.window)
            inside = config.window**2
        linear += windows * inside * _projection_flops(config) + cells * _mlp_flops(config)
        attention += 4 * windows * inside * inside * config.dim
    return linear, attention


# Threads and memory of a run.


def default_threads() -> int:
    """Return the number of threads torch uses for one operation."""
    return torch.get_num_threads()


def peak_megabytes(run: Callable[[], object]) -> float:
    """Return the peak memory in MB of the CPU tensors that `run` allocates."""
    from torch.profiler import ProfilerActivity, profile

    # The profiler records every call of the CPU allocator, also for scratch space inside kernels.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    assert profiler.profiler is not None
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    alive = np.cumsum([change for _, change in sorted(changes)])
    return float(max(alive.max(initial=0), 0)) / 1e6
