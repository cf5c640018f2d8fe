"""Attention as a graph has it: shapes fixed, real numbers only, plain matrix products.

Inside windows tokens sit in slots, and an empty slot's weight of zero hides its key; over whole images queries are cut
into chunks, so that logits of all pairs are never in memory together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vgtok.encode.block import Attention, Route
from vgtok.export.layout import Bucket

_QUERIES_AT_ONCE = 1024
"""Queries of one chunk: shorter ones are slower, longer ones only larger."""


class GraphRoute(Route):
    """Routes of inference."""

    def survivors(self, branch: Tensor, rate: float) -> Tensor:
        """(N, 1) for the (N, D) branch: nothing is dropped."""
        return torch.ones_like(branch[:, :1])


@dataclass(frozen=True)
class GlobalRoute(GraphRoute):
    """Attention over all tokens: `rotations` (N, head_dim / 2, 2), `bias` (N,) on the logits of each key."""

    rotations: Tensor | None
    bias: Tensor | None

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        # 3 of (heads, N, head_dim)
        q, k, v = _projected(attention, x, self.rotations).permute(1, 2, 0, 3).unbind(0)
        # A dynamic N has no number of chunks.
        chunks = torch.split(q, _QUERIES_AT_ONCE, dim=1) if isinstance(q.shape[1], int) else (q,)
        read = torch.cat([_attended(chunk, k, v, self.bias) for chunk in chunks], dim=1)
        return attention.merge(read.transpose(0, 1))


@dataclass(frozen=True)
class WindowRoute(GraphRoute):
    """Attention inside windows of slots: `occupant`, `weight` (S,) and `slot` (N,) as `graph_inputs` has them."""

    rotations: Tensor | None
    buckets: tuple[Bucket, ...]
    occupant: Tensor
    weight: Tensor
    slot: Tensor

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        # A padded cell is zero before the projection, so its query, key and value are the bias: row N.
        padded = torch.unflatten(attention.bias(), 0, (1, 3, attention.heads, -1))
        # (S, 3, heads, head_dim), window after window
        slots = torch.cat([_projected(attention, x, self.rotations), padded])[self.occupant]
        sizes = [bucket.windows * bucket.slots for bucket in self.buckets]
        parts = zip(self.buckets, torch.split(slots, sizes), torch.split(self.weight.log(), sizes), strict=True)
        read = []
        for bucket, part, bias in parts:
            shape = (bucket.windows, bucket.slots)
            # 3 of (windows, heads, slots, head_dim)
            q, k, v = torch.unflatten(part, 0, shape).permute(2, 0, 3, 1, 4).unbind(0)
            found = _attended(q, k, v, torch.unflatten(bias, 0, shape)[:, None, None])
            read.append(found.transpose(1, 2).flatten(0, 1))
        return attention.merge(torch.cat(read)[self.slot])


def _projected(attention: Attention, x: Tensor, rotations: Tensor | None) -> Tensor:
    """(N, D) to (N, 3, heads, head_dim) queries, keys and values, the first two turned."""
    projected = functional.linear(x, attention.qkv.weight, attention.bias())
    qkv = torch.unflatten(projected, 1, (3, attention.heads, -1))
    if rotations is None:
        return qkv
    # (N, 2, heads, head_dim / 2) real and imaginary parts, (N, 1, 1, head_dim / 2) cosines and sines
    real, imaginary = torch.unflatten(qkv[:, :2], -1, (-1, 2)).unbind(-1)
    cosine, sine = rotations[:, None, None].unbind(-1)
    turned = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1).flatten(-2)
    return torch.cat([turned, qkv[:, 2:]], dim=1)


def _attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of (..., Q, head_dim) queries over (..., K, head_dim), `bias` broadcast to the (..., Q, K) logits."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        logits = logits + bias
    return torch.matmul(logits.softmax(dim=-1), v)
