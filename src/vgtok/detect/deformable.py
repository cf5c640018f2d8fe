"""Multi-scale deformable attention in plain PyTorch: each query reads a few points per level, bilinearly.

Queries run in chunks, so that the points of 196,416 positions never lie in memory together.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

QUERIES_AT_ONCE = 16384
"""Queries whose sampled points are in memory at one time: 0.3 GB for the largest model."""

Shapes = Sequence[tuple[int, int]]
"""(rows, columns) of every level."""


class DeformableAttention(nn.Module):
    """Attention over `points` sampled places per head and level; offsets and weights come from the query alone."""

    def __init__(self, dim: int, heads: int, levels: int, points: int) -> None:
        super().__init__()
        self.heads, self.levels, self.points = heads, levels, points
        self.sampling_offsets = nn.Linear(dim, heads * levels * points * 2)
        self.attention_weights = nn.Linear(dim, heads * levels * points)
        self.value_proj = nn.Linear(dim, dim)
        self.output_proj = nn.Linear(dim, dim)
        self._initialise()

    def _initialise(self) -> None:
        """Each head starts looking in a direction of its own, each point one cell further out, all weighed alike."""
        for linear in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        for linear in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        angle = torch.arange(self.heads) * (2 * math.pi / self.heads)
        direction = torch.stack([angle.cos(), angle.sin()], dim=-1)
        # (heads, 2) on the unit square's border, spread to (heads, levels, points, 2)
        direction = direction / direction.abs().amax(dim=-1, keepdim=True)
        steps = torch.arange(1, self.points + 1)[:, None]
        offsets = (direction[:, None, None] * steps).expand(-1, self.levels, -1, -1)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(offsets.flatten())

    def forward(
        self, query: Tensor, reference: Tensor, memory: Tensor, shapes: Shapes, beyond: Tensor | None = None
    ) -> Tensor:
        """(B, Q, D) queries read the (B, S, D) cells of all levels around their references: (B, Q, D).

        A reference is a point (B, Q, 2) or a box (B, Q, 4), centre and size, as a share of the map, or where that
        differs from level to level (B, Q, levels, 2 or 4); offsets are in cells around a point, and in halves of the
        size around a box. Cells that are `beyond` (S,) the image read as zero.
        """
        value = self.value_proj(memory)
        if beyond is not None:
            value = value.masked_fill(beyond[:, None], 0.0)
        # (B, S, D) to (B * heads, D / heads, S), cut into levels
        value = torch.unflatten(value, 2, (self.heads, -1)).permute(0, 2, 3, 1).flatten(0, 1)
        cells = [rows * columns for rows, columns in shapes]
        maps = [
            torch.unflatten(part, 2, shape)
            for part, shape in zip(torch.split(value, cells, dim=2), shapes, strict=True)
        ]
        chunks = zip(*(torch.split(part, QUERIES_AT_ONCE, dim=1) for part in (query, reference)), strict=True)
        return torch.cat([self._read(maps, *chunk) for chunk in chunks], dim=1)

    def _read(self, maps: Sequence[Tensor], query: Tensor, reference: Tensor) -> Tensor:
        """(B, q, D) queries of one chunk, from the (B * heads, D / heads, rows, columns) maps: (B, q, D)."""
        grid = (self.heads, self.levels, self.points)
        weights = torch.unflatten(self.attention_weights(query), 2, (self.heads, -1)).softmax(dim=-1)
        weights = torch.unflatten(weights, 3, grid[1:])
        offsets = torch.unflatten(self.sampling_offsets(query), 2, (*grid, 2))
        if reference.ndim == 3:
            reference = reference[:, :, None]
        # (B, q, 1, 1 or levels, 1, 2 or 4): the same place for every head and point
        reference = reference[:, :, None, :, None]
        centre = reference[..., :2]
        if reference.shape[-1] == 2:
            columns_rows = [[grid.shape[3], grid.shape[2]] for grid in maps]
            places = centre + offsets / offsets.new_tensor(columns_rows)[:, None]
        else:
            places = centre + offsets / self.points * reference[..., 2:] * 0.5
        out: Tensor = self.output_proj(sample(maps, places, weights))
        return out


def sample(maps: Sequence[Tensor], places: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of bilinear readings of (B * heads, D / heads, rows, columns) maps: (B, q, D).

    `places` (B, q, heads, levels, points, 2) are x, y as a share of the image, `weights` (B, q, heads, levels, points);
    outside a map lie zeros.
    """
    batch, queries, heads = weights.shape[:3]
    # Queries last: sums over points then run along memory. (levels, B * heads, points, q, 2) and (..., points, q)
    grids = (2 * places - 1).permute(3, 0, 2, 4, 1, 5).flatten(1, 2)
    shares = weights.permute(3, 0, 2, 4, 1).flatten(1, 2)
    total = maps[0].new_zeros(batch * heads, maps[0].shape[1], queries)
    for level, grid, share in zip(maps, grids, shares, strict=True):
        # (B * heads, D / heads, points, q)
        read = functional.grid_sample(level, grid, align_corners=False)
        total = total + (read * share[:, None]).sum(dim=2)
    # (B * heads, D / heads, q) to (B, q, D)
    return torch.unflatten(total, 0, (batch, heads)).flatten(1, 2).transpose(1, 2)
