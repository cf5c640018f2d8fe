"""Deformable attention: each query reads a few points of every level, at places and with weights it predicts itself.

Queries, reference points or boxes, and the cells of all levels enter; what each query read leaves.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.sites import Sites
from vgtok.encode.plain import Linear, is_rewritten, linear

QUERIES_AT_ONCE = 16384
"""Queries per chunk: their sampled points take 0.3 GB in the largest model."""

_QUERIES_PER_CHUNK = 4096
"""Queries per chunk of the rewritten form: its intermediate results need a few MB."""

Shapes = Sequence[tuple[int, int]]
"""(rows, columns) of every level."""

Reader = Callable[[Tensor, Tensor], Tensor]
"""From a chunk of (B, q, D) queries and their references to the (B, q, D) they read."""


def queries_at_once(like: Tensor) -> int:
    """Return the number of queries to compute together."""
    return _QUERIES_PER_CHUNK if is_rewritten(like) else QUERIES_AT_ONCE


class DeformableAttention(nn.Module):
    """Attention over `points` sampled points per head and level; the query alone gives offsets and weights."""

    def __init__(self, dim: int, heads: int, levels: int, points: int) -> None:
        super().__init__()
        self.heads, self.levels, self.points = heads, levels, points
        self.sampling_offsets = Linear(dim, heads * levels * points * 2)
        self.attention_weights = Linear(dim, heads * levels * points)
        self.value_proj = Linear(dim, dim)
        self.output_proj = Linear(dim, dim)
        self._initialize()

    def _initialize(self) -> None:
        """Start each head in a direction of its own, each point one cell further out, with equal weights."""
        for layer in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        for layer in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        angle = torch.arange(self.heads) * (2 * math.pi / self.heads)
        direction = torch.stack([angle.cos(), angle.sin()], dim=-1)
        # (heads, 2) on the unit square's border, spread to (heads, levels, points, 2)
        direction = direction / direction.abs().amax(dim=-1, keepdim=True)
        steps = torch.arange(1, self.points + 1)[:, None]
        offsets = (direction[:, None, None] * steps).expand(-1, self.levels, -1, -1)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(offsets.flatten())

    def forward(
        self,
        query: Tensor,
        reference: Tensor,
        memory: Tensor,
        shapes: Shapes,
        beyond: Tensor | None = None,
        sites: Sites | None = None,
    ) -> Tensor:
        """Return (B, Q, D): what (B, Q, D) queries read around their references; see `reader` for the others.

        A reference is a point (B, Q, 2) or a box (B, Q, 4), center and size, as a share of the map; if it differs
        between levels, (B, Q, levels, 2 or 4). Offsets are in cells around a point, and in half sides around a box.
        """
        read = self.reader(memory, shapes, beyond, sites)
        length = queries_at_once(query)
        chunks = zip(*(torch.split(part, length, dim=1) for part in (query, reference)), strict=True)
        return torch.cat([read(*chunk) for chunk in chunks], dim=1)

    def reader(
        self, memory: Tensor, shapes: Shapes, beyond: Tensor | None = None, sites: Sites | None = None
    ) -> Reader:
        """Return the function by which chunks of queries read the (B, S, D) cells of all levels.

        Cells `beyond` (S,) the image read as zero. With `sites`, the cells of the first level are those of its sites.
        """
        value = self.value_proj(memory)
        if is_rewritten(memory):
            return _Bags(self, value, shapes, beyond, sites).read
        if sites is not None:
            value = sites.expanded(value)
        if beyond is not None:
            value = value.masked_fill(beyond[:, None], 0.0)
        # (B, S, D) to (B * heads, D / heads, S), cut into levels
        value = torch.unflatten(value, 2, (self.heads, -1)).permute(0, 2, 3, 1).flatten(0, 1)
        cells = [rows * columns for rows, columns in shapes]
        maps = [
            torch.unflatten(part, 2, shape)
            for part, shape in zip(torch.split(value, cells, dim=2), shapes, strict=True)
        ]
        return lambda query, reference: self._read(maps, query, reference)

    def _read(self, maps: Sequence[Tensor], query: Tensor, reference: Tensor) -> Tensor:
        """Return (B, q, D) for one chunk of (B, q, D) queries and (B * heads, D / heads, rows, columns) maps."""
        grid = (self.heads, self.levels, self.points)
        weights = torch.unflatten(self.attention_weights(query), 2, (self.heads, -1)).softmax(dim=-1)
        weights = torch.unflatten(weights, 3, grid[1:])
        offsets = torch.unflatten(self.sampling_offsets(query), 2, (*grid, 2))
        if reference.ndim == 3:
            reference = reference[:, :, None]
        # (B, q, 1, 1 or levels, 1, 2 or 4): the same for every head and point
        reference = reference[:, :, None, :, None]
        center = reference[..., :2]
        if reference.shape[-1] == 2:
            columns_rows = [[grid.shape[3], grid.shape[2]] for grid in maps]
            places = center + offsets / offsets.new_tensor(columns_rows)[:, None]
        else:
            places = center + offsets / self.points * reference[..., 2:] * 0.5
        out: Tensor = self.output_proj(sample(maps, places, weights))
        return out


def sample(maps: Sequence[Tensor], places: Tensor, weights: Tensor) -> Tensor:
    """Return the (B, q, D) weighted sums of bilinear samples of (B * heads, D / heads, rows, columns) maps.

    `places` (B, q, heads, levels, points, 2) are x, y as shares of the image, `weights` (B, q, heads, levels, points).
    Outside a map the samples are zero.
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


class _Bags:
    """The rewritten reading: one bag of weighted rows per query and head, four for every point, summed in one call.

    Levels get a border of zeros, which stands for everything outside. Head, level and point together are the K columns
    of all intermediate results. Built for one (B, S, D) tensor of values; the others are those of `reader`.
    """

    def __init__(
        self,
        attention: DeformableAttention,
        value: Tensor,
        shapes: Shapes,
        beyond: Tensor | None,
        sites: Sites | None,
    ) -> None:
        self.attention = attention
        heads, points = attention.heads, attention.points
        batch = len(value)
        sizes = [(rows + 2) * (columns + 2) for rows, columns in shapes]
        # (B * cells * heads, D / heads)
        self.table = torch.unflatten(_bordered(value, shapes, beyond, sites), 2, (heads, -1)).flatten(0, 2)
        self.images = torch.arange(batch, dtype=torch.int32)[:, None, None] * (sum(sizes) * heads)

        def column(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32).repeat_interleave(points).repeat(heads)

        starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist()
        self.level = column(list(range(len(shapes))))
        self.rows, self.columns = column([rows for rows, _ in shapes]), column([columns for _, columns in shapes])
        head = torch.arange(heads, dtype=torch.int32).repeat_interleave(len(shapes) * points)
        self.first = column([start * heads for start in starts]) + head
        self.right, self.down = heads, (self.columns + 2) * heads
        offsets = torch.unflatten(attention.sampling_offsets.weight, 0, (-1, 2)).unbind(1)
        # (3 K, D): x, y, logits
        self.weight = torch.cat([*offsets, attention.attention_weights.weight])
        bias = torch.unflatten(attention.sampling_offsets.bias, 0, (-1, 2)).unbind(1)
        self.bias = torch.cat([*bias, attention.attention_weights.bias])

    def read(self, query: Tensor, reference: Tensor) -> Tensor:
        """Return (B, q, D) for one chunk of (B, q, D) queries."""
        batch, queries = query.shape[:2]
        heads = self.attention.heads
        # (B, q, K) each
        predicted = linear(query, self.weight, self.bias).float()
        x, y, logits = torch.unflatten(predicted, 2, (3, -1)).unbind(2)
        logits = torch.unflatten(logits, 2, (heads, -1))
        # Not softmax, which is slow over so few values.
        chance = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
        weight = chance.div_(chance.sum(dim=-1, keepdim=True)).flatten(2)
        column, right = self._placed(x, reference, 0, self.columns)
        row, down = self._placed(y, reference, 1, self.rows)
        at = self.images + row * self.down + column * self.right + self.first
        # The four cells around every point, (B, q, heads, 4, levels * points): one bag per query and head
        low, corner = weight * down, weight * down * right
        index = self._bags([at, at + self.right, at + self.down, at + (self.down + self.right)])
        beside = weight * right
        shares = self._bags([weight - beside - (low - corner), beside - corner, low - corner, corner])
        found = functional.embedding_bag(index, self.table, per_sample_weights=shares.to(self.table.dtype), mode="sum")
        out: Tensor = self.attention.output_proj(found.view(batch, queries, -1))
        return out

    def _placed(self, offset: Tensor, reference: Tensor, axis: int, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, q, K) cells of a bordered level that points lie behind on one axis, and how far as a share."""
        center = self._by_column(reference[..., axis])
        if reference.shape[-1] == 4:
            side = self._by_column(reference[..., axis + 2])
            offset = offset * (side * (0.5 / self.attention.points)) * cells
        # The middle of the first cell is 1.5: one cell of border, half a cell.
        place = torch.minimum((offset + center * cells).add_(0.5), cells + 1).clamp_(min=0)
        # A place that is no number is outside any range as an integer.
        cell = torch.minimum(place.int(), cells).clamp_(min=0)
        return cell, place - cell

    def _by_column(self, values: Tensor) -> Tensor:
        """Spread values (B, q), or (B, q, levels), to the (B, q, 1 or K) columns."""
        return values[..., None] if values.ndim == 2 else values[..., self.level]

    def _bags(self, parts: list[Tensor]) -> Tensor:
        """Interleave four (B, q, K) tensors to (B * q * heads, 4 * levels * points)."""
        cut = [torch.unflatten(part, 2, (self.attention.heads, -1)) for part in parts]
        return torch.stack(cut, dim=3).flatten(3).flatten(0, 2)


def _bordered(value: Tensor, shapes: Shapes, beyond: Tensor | None, sites: Sites | None) -> Tensor:
    """Return the (B, S', D) values of all levels, each with a border of zeros; zero also `beyond` (S,) the image."""
    cells = [rows * columns for rows, columns in shapes]
    table = value.new_empty(len(value), sum((rows + 2) * (columns + 2) for rows, columns in shapes), value.shape[2])
    levels = torch.split(table, [(rows + 2) * (columns + 2) for rows, columns in shapes], dim=1)
    stored = cells if sites is None else [len(sites), *cells[1:]]
    masks = [None] * len(cells) if beyond is None else torch.split(beyond, cells)
    for number, (shape, level, part) in enumerate(zip(shapes, levels, torch.split(value, stored, dim=1), strict=True)):
        grid = torch.unflatten(level, 1, (shape[0] + 2, shape[1] + 2))
        inner = grid[:, 1:-1, 1:-1]
        if sites is not None and not number:
            torch.index_select(functional.pad(part, (0, 0, 0, 1)), 1, sites.bordered, out=level)
        else:
            inner.copy_(torch.unflatten(part, 1, shape))
            for edge in (grid[:, 0], grid[:, -1], grid[:, :, 0], grid[:, :, -1]):
                edge.zero_()
        if (mask := masks[number]) is not None:
            inner.masked_fill_(torch.unflatten(mask, 0, shape)[..., None], 0.0)
    return table
