"""The transformer block of all configurations.

A route (packed runs, or a dense grid with padded windows) decides which tokens attend to each other. It receives the
attention module and the normalized tokens, so that the same weights run in every mode.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.attention import Keys, rotate
from vgtok.encode.config import EncoderConfig


def draw_survivors(count: int, rate: float, like: Tensor) -> Tensor:
    """Draw (count,) drop-path factors with the device and precision of `like`, of any shape."""
    return like.new_empty(count).bernoulli_(1.0 - rate).div_(1.0 - rate)


class Route(Protocol):
    """One way of running a block."""

    def attend(self, attention: "Attention", x: Tensor) -> Tensor:
        """Attend over normalized tokens, (..., D)."""

    def survivors(self, branch: Tensor, rate: float) -> Tensor:
        """Return one factor per image of the (..., D) branch as (..., 1): 0 if it is dropped, else 1 / (1 - rate)."""


class Attention(nn.Module):
    """Multi-head attention with one fused projection, optionally without key bias as in EVA-02."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=config.key_bias)
        self.out = nn.Linear(config.dim, config.dim)
        if not config.key_bias:
            self.query_bias = nn.Parameter(torch.zeros(config.dim))
            self.value_bias = nn.Parameter(torch.zeros(config.dim))

    def bias(self) -> Tensor:
        """Return the (3 D,) bias of the fused projection."""
        if self.qkv.bias is not None:
            return self.qkv.bias
        return torch.cat([self.query_bias, torch.zeros_like(self.query_bias), self.value_bias])

    def keys(self, bias: Tensor | None = None) -> Keys:
        """Return key and value of a padded cell, zero before the projection, and an optional (N,) logit bias."""
        _, key, value = self.bias().view(3, self.heads, -1)
        return Keys(key, value, bias)

    def project(self, x: Tensor, rotations: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Project (..., N, D) to q, k, v of (..., N, heads, head_dim); rotate q and k by (N, head_dim / 2)."""
        # (..., N, 3 D) to (..., N, 3, heads, head_dim)
        qkv = torch.unflatten(functional.linear(x, self.qkv.weight, self.bias()), -1, (3, self.heads, -1))
        q, k, v = qkv.unbind(-3)
        if rotations is not None:
            q, k = rotate(qkv[..., :2, :, :], rotations).unbind(-3)
        return q, k, v

    def merge(self, x: Tensor) -> Tensor:
        """Apply the output projection: (..., heads, head_dim) to (..., D)."""
        merged: Tensor = self.out(x.flatten(-2))
        return merged


class GeluMLP(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.dim, config.hidden)
        self.contract = nn.Linear(config.hidden, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        contracted: Tensor = self.contract(functional.gelu(self.expand(x)))
        return contracted


class SwiGLUMLP(nn.Module):
    """A linear map gated by the SiLU of another, then a third, with a norm before the third in larger EVA-02 sizes."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden)
        self.expand = nn.Linear(config.dim, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps) if config.mlp_norm else nn.Identity()
        self.contract = nn.Linear(config.hidden, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        # In place: these are the widest tensors of the block and set its peak memory.
        hidden = functional.silu(self.gate(x), inplace=True).mul_(self.expand(x))
        contracted: Tensor = self.contract(self.norm(hidden))
        return contracted


class Block(nn.Module):
    """Pre-norm attention and MLP, each optionally scaled per channel and dropped per image while training."""

    def __init__(self, config: EncoderConfig, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = SwiGLUMLP(config) if config.mlp == "swiglu" else GeluMLP(config)
        self.scale1 = nn.Parameter(torch.ones(config.dim)) if config.layer_scale else None
        self.scale2 = nn.Parameter(torch.ones(config.dim)) if config.layer_scale else None
        self.drop_path = drop_path

    def forward(self, x: Tensor, route: Route) -> Tensor:
        """(..., D) to (..., D); the route attends."""
        x = self._added(x, route.attend(self.attention, self.norm1(x)), self.scale1, route)
        return self._added(x, self.mlp(self.norm2(x)), self.scale2, route)

    def _added(self, x: Tensor, branch: Tensor, scale: Tensor | None, route: Route) -> Tensor:
        if scale is not None:
            branch = branch * scale
        if self.training and self.drop_path:
            branch = branch * route.survivors(branch, self.drop_path)
        # The gradient of a linear map does not need its output, so the sum may overwrite it; under autocast the branch
        # is in half precision and the sum must not be.
        return branch.add_(x) if branch.dtype == x.dtype else x + branch
