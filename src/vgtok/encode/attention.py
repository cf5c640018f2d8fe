"""Attention within the groups of a packed sequence, by the fastest backend of the device, and rotary positions.

(N, heads, head_dim) queries, keys and values enter, (N, heads, head_dim) leave.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import accumulate, groupby
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vgtok.encode.packing import Groups
from vgtok.errors import InputError


@dataclass(frozen=True)
class Keys:
    """What attention adds to the keys of a sequence.

    `padding_key` and `padding_value`, (heads, head_dim), belong to a padded cell; `bias` (N,) is added to all
    logits of each key.
    """

    padding_key: Tensor
    padding_value: Tensor
    bias: Tensor | None = None


Backend = Callable[[Tensor, Tensor, Tensor, Groups, Keys], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys, backend: str | None = None) -> Tensor:
    """Attend with (N, heads, head_dim) queries, keys and values inside `groups`; return (N, heads, head_dim)."""
    name = backend or best_backend(q)
    if name not in BACKENDS:
        raise InputError(f"backend: '{name}' is not one of {', '.join(BACKENDS)}")
    # Under autocast projections are in half precision, but parameters and so the key of the padding are not.
    padding = (keys.padding_key.to(q.dtype), keys.padding_value.to(q.dtype))
    bias = None if keys.bias is None else keys.bias.to(q.dtype)
    return BACKENDS[name](q, k, v, groups, Keys(*padding, bias))


def best_backend(q: Tensor) -> str:
    """Return the fastest backend for the device and precision of (N, heads, head_dim) queries."""
    if not q.is_cuda:
        return "grouped"
    # The variable-length kernels are for half precision, and for GPUs from compute capability 8.0 on.
    if q.dtype not in (torch.float16, torch.bfloat16) or torch.cuda.get_device_capability(q.device)[0] < 8:
        return "padded"
    if _installed("torch.nn.attention.varlen"):
        return "varlen"
    return "flash" if _installed("flash_attn") else "padded"


def masked(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys) -> Tensor:
    """Reference: score all pairs of (N, heads, head_dim) and mask those across groups."""
    owner = torch.repeat_interleave(
        torch.arange(len(groups.lengths), device=q.device), torch.tensor(groups.lengths, device=q.device)
    )
    # Virtual keys follow the N real ones, one per group: (N, N + G).
    padding = torch.tensor(groups.padding, device=q.device, dtype=q.dtype)
    virtual = torch.where(torch.arange(len(padding), device=q.device) == owner[:, None], padding.log(), -torch.inf)
    real = torch.zeros_like(owner, dtype=q.dtype) if keys.bias is None else keys.bias
    mask = torch.cat([torch.where(owner == owner[:, None], real, -torch.inf), virtual], dim=1)
    k = torch.cat([k, keys.padding_key.expand(len(padding), -1, -1)])
    v = torch.cat([v, keys.padding_value.expand(len(padding), -1, -1)])
    return _scaled(q[None], k[None], v[None], mask[None, None])[0]


def grouped(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys) -> Tensor:
    """Call the kernel once per run of groups of equal length; no masked pair of (N, heads, head_dim) is computed."""
    runs = [(*kind, len(list(run))) for kind, run in groupby(zip(groups.lengths, groups.padding, strict=True))]
    sizes = [length * count for length, _, count in runs]
    # Splitting, not slicing: its backward writes each gradient once instead of once per slice.
    parts = zip(*(torch.split(values, sizes) for values in (q, k, v)), _split(keys.bias, sizes), runs, strict=True)
    outputs = []
    for part_q, part_k, part_v, part_bias, (length, padding, count) in parts:
        # (count * length, heads, head_dim) to (count, length, heads, head_dim)
        batch_q, batch_k, batch_v = (torch.unflatten(part, 0, (count, length)) for part in (part_q, part_k, part_v))
        bias = None if part_bias is None else torch.unflatten(part_bias, 0, (count, length))
        if padding:
            batch_k = torch.cat([batch_k, keys.padding_key.expand(count, 1, -1, -1)], dim=1)
            batch_v = torch.cat([batch_v, keys.padding_value.expand(count, 1, -1, -1)], dim=1)
            bias = q.new_zeros(count, length) if bias is None else bias
            bias = functional.pad(bias, (0, 1), value=log(padding))
        mask = None if bias is None else bias[:, None, None, :]
        outputs.append(_scaled(batch_q, batch_k, batch_v, mask).flatten(0, 1))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def padded(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys) -> Tensor:
    """Pad all groups of (N, heads, head_dim) to the longest in one batch: few launches, some wasted pairs."""
    lengths = torch.tensor(groups.lengths, device=q.device)
    longest = max(groups.lengths)
    step = torch.arange(longest, device=q.device)
    inside = step < lengths[:, None]
    # (G, longest) indices into the sequence; those beyond a group repeat its last token and are masked.
    index = (lengths.cumsum(0) - lengths)[:, None] + torch.minimum(step, lengths[:, None] - 1)
    bias = torch.zeros_like(index, dtype=q.dtype) if keys.bias is None else keys.bias[index]
    virtual = torch.tensor(groups.padding, device=q.device, dtype=q.dtype).log()[:, None]
    mask = torch.cat([bias.masked_fill(~inside, -torch.inf), virtual], dim=1)
    batch_k = torch.cat([k[index], keys.padding_key.expand(len(lengths), 1, -1, -1)], dim=1)
    batch_v = torch.cat([v[index], keys.padding_value.expand(len(lengths), 1, -1, -1)], dim=1)
    return _scaled(q[index], batch_k, batch_v, mask[:, None, None, :])[inside]


def varlen(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys) -> Tensor:
    """Use torch's CUDA kernel for sequences of variable length, (N, heads, head_dim)."""
    from torch.nn.attention.varlen import varlen_attn

    return _variable_length(varlen_attn, "scale", q, k, v, groups, keys)


def flash(q: Tensor, k: Tensor, v: Tensor, groups: Groups, keys: Keys) -> Tensor:
    """Use the CUDA kernel of the flash-attn package for sequences of variable length, (N, heads, head_dim)."""
    from flash_attn import flash_attn_varlen_func

    return _variable_length(flash_attn_varlen_func, "softmax_scale", q, k, v, groups, keys)


BACKENDS: dict[str, Backend] = {
    "varlen": varlen,
    "flash": flash,
    "grouped": grouped,
    "padded": padded,
    "masked": masked,
}
"""Backends by name, fastest first."""


@cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None


def _scaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with (B, L, heads, head_dim) tensors; kernels expect heads first."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    if q.dtype == torch.bfloat16 and not q.is_cuda:
        # On CPUs torch's bf16 kernel is slower than its fp32 one; two matrix products are not.
        logits = (q @ k.transpose(2, 3)) * q.shape[-1] ** -0.5
        chance = (logits if mask is None else logits + mask).softmax(dim=-1)
        mixed: Tensor = chance.to(v.dtype) @ v
        return mixed.transpose(1, 2)
    return functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)


def _split(values: Tensor | None, sizes: list[int]) -> list[Tensor | None]:
    return [None] * len(sizes) if values is None else list(torch.split(values, sizes))


def _variable_length(
    kernel: Callable[..., Any],
    scale_name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: Groups,
    keys: Keys,
) -> Tensor:
    """Run a kernel that takes cumulative lengths but no bias; the bias becomes one more channel of q . k."""
    head_dim = q.shape[-1]
    lengths = list(groups.lengths)
    bias = keys.bias
    if any(groups.padding):
        real = q.new_zeros(len(q)) if bias is None else bias
        k_parts, v_parts, bias_parts = [], [], []
        for part_k, part_v, part_bias, padding in zip(
            *(torch.split(values, lengths) for values in (k, v, real)), groups.padding, strict=True
        ):
            k_parts += [part_k, keys.padding_key[None]] if padding else [part_k]
            v_parts += [part_v, keys.padding_value[None]] if padding else [part_v]
            bias_parts += [part_bias, real.new_tensor([padding]).log()] if padding else [part_bias]
        k, v, bias = torch.cat(k_parts), torch.cat(v_parts), torch.cat(bias_parts)
    key_lengths = tuple(n + bool(padding) for n, padding in zip(lengths, groups.padding, strict=True))
    scale = head_dim**-0.5
    if bias is not None:
        # Kernels need widths that are multiples of 8: the bias takes the first of eight new channels.
        ones = functional.pad(q.new_ones(*q.shape[:2], 1), (0, 7))
        column = (bias / scale)[:, None, None].expand(-1, k.shape[1], 1)
        q = torch.cat([q, ones], dim=-1)
        k = torch.cat([k, functional.pad(column, (0, 7))], dim=-1)
        v = functional.pad(v, (0, 8))
    cumulative_q, cumulative_k = _cumulative(groups.lengths, q.device), _cumulative(key_lengths, q.device)
    longest = (max(groups.lengths), max(key_lengths))
    out: Tensor = kernel(q, k, v, cumulative_q, cumulative_k, *longest, **{scale_name: scale})
    return out[..., :head_dim]


@lru_cache(maxsize=8)
def _cumulative(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return (G + 1,) int32 starts of the groups; cached, as all blocks of a forward pass need the same two."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


# Rotary positions.

REFERENCE_GRID = 16.0
"""Cells per side of the grid the frequencies were trained on; other grids and windows are stretched onto it."""


def rotation(row: Tensor, column: Tensor, head_dim: int) -> Tensor:
    """Return (N, head_dim / 2) unit complex numbers for (N,) coordinates as shares of the grid, 0 to below 1."""
    exponent = torch.arange(0, head_dim // 2, 2, device=row.device, dtype=torch.float32) / (head_dim // 2)
    frequency = 10000.0**-exponent
    # (N, head_dim / 4) each; rows fill the first half of a head, columns the second.
    angles = [share[:, None] * REFERENCE_GRID * frequency for share in (row, column)]
    angle = torch.cat(angles, dim=1)
    return torch.polar(torch.ones_like(angle), angle)


def rotate(values: Tensor, rotations: Tensor) -> Tensor:
    """Rotate (..., N, C, heads, head_dim) by (N, head_dim / 2) rotations, in fp32."""
    # (..., N, C, heads, head_dim / 2) complex
    pairs = torch.view_as_complex(torch.unflatten(values.float(), -1, (-1, 2)))
    turned = pairs * rotations[:, None, None, :]
    return torch.view_as_real(turned).flatten(-2).to(values.dtype)
