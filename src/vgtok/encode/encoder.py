"""The encoder: images and their partitions in, one dense feature map per image out.

Blocks run on the packed (N, D) sequence of all images; each coarse token fills the cells it spans in one gather
after the last block, alike or by its `spread`. `modes.py` runs the same weights on full grids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.attention import Keys, attend, rotate, rotation
from vgtok.encode.config import EncoderConfig, configuration
from vgtok.encode.embed import Embedding, Layout, lay_out
from vgtok.encode.packing import Crop, Groups, Packing, pack
from vgtok.encode.plain import Linear, linear, linear_gelu, spare_rows
from vgtok.encode.spread import Spread
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL, ROOT
from vgtok.tokenize.tokens import Tokens


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
        self.qkv = Linear(config.dim, 3 * config.dim, bias=config.key_bias)
        self.out = Linear(config.dim, config.dim)
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
        qkv = torch.unflatten(linear(x, self.qkv.weight, self.bias()), -1, (3, self.heads, -1))
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
        self.expand = Linear(config.dim, config.hidden)
        self.contract = Linear(config.hidden, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        contracted: Tensor = self.contract(linear_gelu(x, self.expand.weight, self.expand.bias))
        return contracted


class SwiGLUMLP(nn.Module):
    """A linear map gated by the SiLU of another, then a third, with a norm before the third in larger EVA-02 sizes."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gate = Linear(config.dim, config.hidden)
        self.expand = Linear(config.dim, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps) if config.mlp_norm else nn.Identity()
        self.contract = Linear(config.hidden, config.dim)

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


@dataclass(frozen=True)
class Features:
    """`maps` holds one (D, rows, columns) map per image, `prefix` is (B, P, D): class token and registers."""

    maps: tuple[Tensor, ...]
    prefix: Tensor


class Encoder(nn.Module):
    """A vision transformer that reads partitions; calling it runs the packed mode."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        rates = np.linspace(0.0, config.drop_path, config.depth)
        self.blocks = nn.ModuleList(Block(config, float(rate)) for rate in rates)
        eps = config.out_norm_eps
        self.out_norm = nn.Identity() if eps is None else nn.LayerNorm(config.dim, eps=eps)
        self.spread = Spread(config) if config.spread else None
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(
        self,
        images: Sequence[Tensor],
        tokens: Sequence[Tokens],
        backend: str | None = None,
        crops: Sequence[Crop] | None = None,
    ) -> Features:
        """Encode B images, each (3, H, W) uint8 RGB or normalized floats, with the partition of each.

        An image is the valid area of its canvas or the whole canvas with padding. If images are crops, `crops` hold
        their positions on their canvases.
        """
        images = valid_areas(images, tokens, self.config)
        packing = pack(tokens, self.config, crops)
        layout = lay_out(packing, self.config, self.embedding.table.device)
        sequence = self.embedding(images, packing, layout)
        spare = spare_rows(sequence)
        sequence = functional.pad(sequence, (0, 0, 0, spare)) if spare else sequence
        routes = PackedRoutes(packing, layout, self.config, backend, spare)
        for number, block in enumerate(self.blocks):
            sequence = block(sequence, routes.of(number))
        return unpack(self.out_norm(sequence[: len(packing)]), packing, layout, self.spread)


def unpack(sequence: Tensor, packing: Packing, layout: Layout, spread: Spread | None = None) -> Features:
    """Copy every token of the packed (N, D) sequence to the cells it covers, by one gather."""
    every = sequence.index_select(0, layout.cells) if spread is None else spread(sequence, layout)
    sizes = [rows * columns for rows, columns in packing.grids]
    # (all cells of all images, D), then a (D, rows, columns) view per image: channels last in memory
    cells = torch.split(every, sizes)
    maps = tuple(
        torch.unflatten(part, 0, grid).permute(2, 0, 1) for part, grid in zip(cells, packing.grids, strict=True)
    )
    return Features(maps, sequence[layout.prefix])


def valid_areas(images: Sequence[Tensor], tokens: Sequence[Tokens], config: EncoderConfig) -> list[Tensor]:
    """Cut each (3, H, W) image to the area its tokens partition; raise InputError if their sizes disagree."""
    if len(images) != len(tokens) or not tokens:
        raise InputError(f"tokens: {len(tokens)} partitions for {len(images)} images; give one for each, at least one")
    areas = []
    for number, (image, partition) in enumerate(zip(images, tokens, strict=True)):
        # With another patch size the canvas is scaled: the partition counts cells, not pixels.
        height, width = (-(-side * config.patch // CELL) for side in (partition.height, partition.width))
        extent = partition.extent
        canvas = (extent.root_rows * ROOT * config.patch // CELL, extent.root_columns * ROOT * config.patch // CELL)
        if image.ndim != 3 or image.shape[0] != 3 or tuple(image.shape[1:]) not in ((height, width), canvas):
            raise InputError(
                f"image {number}: shape {tuple(image.shape)} does not belong to its tokens, which partition "
                f"(3, {height}, {width}), or {canvas[0]} x {canvas[1]} with padding; tokenize this image first"
            )
        areas.append(image[:, :height, :width])
    return areas


def _with_spare(groups: Groups, spare: int) -> Groups:
    return Groups((*groups.lengths, spare), (*groups.padding, 0.0)) if spare else groups


class PackedRoutes:
    """The two routes of a packed sequence, inside windows and over whole images, computed once for all blocks.

    `spare` rows behind the sequence attend among themselves.
    """

    def __init__(
        self, packing: Packing, layout: Layout, config: EncoderConfig, backend: str | None, spare: int = 0
    ) -> None:
        self.packing, self.layout, self.config, self.backend = packing, layout, config, backend
        self.rows = len(packing) + spare
        self.windows, self.images = (_with_spare(groups, spare) for groups in (packing.windows, packing.images))

    def of(self, block: int) -> "PackedRoute":
        """Return the route of a block."""
        return self._over_images if self.config.is_global(block) else self._inside_windows

    @cached_property
    def _over_images(self) -> "PackedRoute":
        rotations = self._rotations(None)
        return PackedRoute(self.images, self.images, rotations, self._key_bias, self.backend)

    @cached_property
    def _inside_windows(self) -> "PackedRoute":
        rotations = self._rotations(self.config.window)
        return PackedRoute(self.windows, self.images, rotations, self._key_bias, self.backend)

    def _rotations(self, window: int | None) -> Tensor | None:
        """Return (N, head_dim / 2) rotations by position in the window or the canvas; prefix tokens are not rotated."""
        if not self.config.rope:
            return None
        at = self.layout
        row, column = at.center_row - 0.5, at.center_column - 0.5
        if window is None:
            row, column = row / at.grid_rows, column / at.grid_columns
        else:
            # Windows are counted in the image, centers on the canvas.
            first_row = at.canvas_row - at.row % window
            first_column = at.canvas_column - at.column % window
            row, column = (row - first_row) / window, (column - first_column) / window
        turned = rotation(row.float(), column.float(), self.config.head_dim)
        rotations = turned.new_ones(self.rows, turned.shape[1])
        rotations[at.slot] = turned
        return rotations

    @cached_property
    def _key_bias(self) -> Tensor | None:
        """(N,) logarithm of the cells each key covers; None if all keys count once."""
        if not self.config.proportional or self.packing.span.max() == 1:
            return None
        bias = torch.zeros(self.rows, device=self.layout.slot.device)
        bias[self.layout.slot] = self.layout.covered.float().log()
        return bias


@dataclass(frozen=True)
class PackedRoute(Route):
    """Attention inside `groups` of a packed sequence; drop path acts on the runs of `images`."""

    groups: Groups
    images: Groups
    rotations: Tensor | None
    key_bias: Tensor | None
    backend: str | None

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        q, k, v = attention.project(x, self.rotations)
        return attention.merge(attend(q, k, v, self.groups, attention.keys(self.key_bias), self.backend))

    def survivors(self, branch: Tensor, rate: float) -> Tensor:
        """Draw (N, 1) drop-path factors for the (N, D) branch, one per image."""
        draws = draw_survivors(len(self.images.lengths), rate, branch)
        lengths = torch.tensor(self.images.lengths, device=branch.device)
        return torch.repeat_interleave(draws, lengths)[:, None]


def build_encoder(name: str, **changes: Any) -> Encoder:
    """Build the encoder of a configuration by name, with initial weights; change fields by keyword."""
    return Encoder(configuration(name, **changes))
