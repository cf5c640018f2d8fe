"""What one forward pass costs, counted per image from its real partition: FLOPs, parameters, peak memory.

A multiply-add is two FLOPs. Attention counts every scored pair, also where a profiler sees nothing (fused kernels on
CPU report zero); norms, activations and softmax are left out everywhere, as is usual.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import Groups, Packing
from vgtok.tokenize.geometry import CELL


@dataclass(frozen=True)
class _Cost:
    """FLOPs of one token through one block's linear maps, by whether padded cells pass through them too."""

    projections: int
    mlp: int

    @classmethod
    def of(cls, config: EncoderConfig) -> "_Cost":
        maps = 3 if config.mlp == "swiglu" else 2
        return cls(2 * 4 * config.dim**2, 2 * maps * config.dim * config.hidden)


def packed_flops(config: EncoderConfig, packing: Packing) -> int:
    """FLOPs of the packed execution of a layout, all its images together."""
    cost = _Cost.of(config)
    total = embedding_flops(config, packing)
    for block in range(config.depth):
        groups = packing.images if config.is_global(block) else packing.windows
        total += len(packing) * (cost.projections + cost.mlp) + _attention_flops(config, groups)
    return total


def dense_flops(config: EncoderConfig, rows: int, columns: int) -> int:
    """FLOPs of the dense execution of one image of (rows, columns) cells; padded windows are computed in full."""
    return rows * columns * _patch_flops(config) + _grid_flops(config, rows, columns)


def control_flops(config: EncoderConfig, packing: Packing) -> int:
    """FLOPs of the scatter control: the tokens' embedding, then every block on every cell."""
    return embedding_flops(config, packing) + sum(_grid_flops(config, *grid) for grid in packing.grids)


def embedding_flops(config: EncoderConfig, packing: Packing) -> int:
    """FLOPs of projecting the tokens, fusion included; the position table is read, not multiplied."""
    total = packing.place.size * _patch_flops(config)
    for size in config.fusion:
        span = size // CELL
        tokens = int((packing.span == span).sum())
        total += tokens * span * span * _patch_flops(config)
        while span > 1:
            span //= 2
            total += tokens * span * span * 2 * 4 * config.dim**2
        total += tokens * 2 * config.dim**2
    return total


def _patch_flops(config: EncoderConfig) -> int:
    return 2 * 3 * config.patch**2 * config.dim


def _attention_flops(config: EncoderConfig, groups: Groups) -> int:
    """Scores and weighted sums of every query with every key of its group, the virtual key included."""
    lengths = np.array(groups.lengths, dtype=np.int64)
    keys = lengths + (np.array(groups.padding) > 0)
    return int((4 * lengths * keys * config.dim).sum())


def _grid_flops(config: EncoderConfig, rows: int, columns: int) -> int:
    cost = _Cost.of(config)
    cells = rows * columns + config.prefix
    total = 0
    for block in range(config.depth):
        if config.is_global(block):
            total += cells * cost.projections + 4 * cells * cells * config.dim
        else:
            assert config.window is not None
            windows = -(-rows // config.window) * -(-columns // config.window)
            inside = config.window**2
            total += windows * (inside * cost.projections + 4 * inside * inside * config.dim)
        total += cells * cost.mlp
    return total


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Parameters of an encoder: the backbone it is without coarse tokens, and the fusion."""
    fusion = sum(p.numel() for name, p in model.named_parameters() if name.startswith("embedding.fusion."))
    total = sum(p.numel() for p in model.parameters())
    return {"backbone": total - fusion, "fusion": fusion, "total": total}


def default_threads() -> int:
    """Threads torch runs one operation on."""
    return torch.get_num_threads()


def peak_megabytes(run: Callable[[], object]) -> float:
    """Largest sum of host tensors alive at once that `run` itself allocated, in MB; what was there does not count."""
    from torch.profiler import ProfilerActivity, profile

    # The profiler sees every call of the CPU allocator, scratch space inside kernels included.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    alive = np.cumsum([change for _, change in sorted(changes)])
    return float(max(alive.max(initial=0), 0)) / 1e6
