"""Count the operations of an encoder, and measure the memory of a run."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import Groups, Packing, pack
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens


class Flops(NamedTuple):
    """FLOPs by part: before the first block, in the blocks' linear maps, and in attention proper."""

    embedding: int
    linear: int
    attention: int


def encoder_flops(mode: str, config: EncoderConfig, tokens: Tokens) -> Flops:
    """Count the FLOPs of mode 'dense', 'packed' or 'control' for one image with this partition."""
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


def _projection_flops(config: EncoderConfig) -> int:
    """One token through q, k, v and the output projection."""
    return 2 * 4 * config.dim**2


def _mlp_flops(config: EncoderConfig) -> int:
    """One token through the MLP."""
    return 2 * (3 if config.mlp == "swiglu" else 2) * config.dim * config.hidden


def _packed_flops(config: EncoderConfig, packing: Packing) -> tuple[int, int]:
    linear = config.depth * len(packing) * (_projection_flops(config) + _mlp_flops(config))
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
