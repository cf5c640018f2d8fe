"""Embed tokens: gather and resize the pixels under each, add its position, and fuse the base patches of coarse ones.

Images and a `Packing` enter, the packed (N, D) sequence leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.coarse import Merged, marks_of, merge, resample
from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import Packing
from vgtok.encode.plain import Linear, is_rewritten, linear
from vgtok.tokenize.geometry import CELL


@dataclass(frozen=True)
class Layout:
    """A `Packing` as tensors over the N' tokens that stand for regions; see there for `slot`, `prefix` and `cells`.

    `row` and `column` are cells of the image, `canvas_row` and `canvas_column` cells of the canvas of `grid_rows` x
    `grid_columns` that the image may be a crop of. `center_row` and `center_column` are where a token reads its
    position, on the canvas too; the middle of the first cell is 0.5. `covered` counts the cells of a token, `members`
    lists the tokens of each span per image. For every cell of the images, `cell_span` is the span of the token over it
    and `within` its place among the cells of that token, row by row.
    """

    row: Tensor
    column: Tensor
    canvas_row: Tensor
    canvas_column: Tensor
    grid_rows: Tensor
    grid_columns: Tensor
    center_row: Tensor
    center_column: Tensor
    covered: Tensor
    slot: Tensor
    prefix: Tensor
    cells: Tensor
    members: tuple[dict[int, Tensor], ...]
    cell_span: Tensor
    within: Tensor


def lay_out(packing: Packing, config: EncoderConfig, device: torch.device) -> Layout:
    """Move a packing to the device and compute the point at which each token reads its position."""
    covered_rows, covered_columns = packing.covered
    canvases = np.array([crop.grid for crop in packing.crops], dtype=np.int64)[packing.image]
    corners = np.array([crop.corner for crop in packing.crops], dtype=np.int64)[packing.image]
    canvas_row, canvas_column = packing.row + corners[:, 0], packing.column + corners[:, 1]
    if config.position == "corner":
        center_row, center_column = canvas_row + 0.5, canvas_column + 0.5
    else:
        center_row, center_column = canvas_row + covered_rows / 2, canvas_column + covered_columns / 2

    cell_span, within = packing.under_tokens()

    def tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return Layout(
        row=tensor(packing.row),
        column=tensor(packing.column),
        canvas_row=tensor(canvas_row),
        canvas_column=tensor(canvas_column),
        grid_rows=tensor(canvases[:, 0]),
        grid_columns=tensor(canvases[:, 1]),
        center_row=tensor(center_row),
        center_column=tensor(center_column),
        covered=tensor(covered_rows * covered_columns),
        slot=tensor(packing.slot),
        prefix=tensor(packing.prefix),
        cells=tensor(packing.cells),
        members=tuple(
            {
                int(span): tensor(np.flatnonzero((packing.image == number) & (packing.span == span)))
                for span in np.unique(packing.span[packing.image == number])
            }
            for number in range(len(packing.grids))
        ),
        cell_span=tensor(cell_span),
        within=tensor(within),
    )


# Patches.


def normalize(pixels: Tensor, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Normalize (..., 3, H, W) uint8 RGB by mean and standard deviation; floats count as normalized already."""
    if pixels.dtype != torch.uint8:
        return pixels.to(dtype)
    mean = torch.tensor(config.mean, device=pixels.device, dtype=dtype).view(3, 1, 1)
    std = torch.tensor(config.std, device=pixels.device, dtype=dtype).view(3, 1, 1)
    return pixels.to(dtype).sub_(mean).div_(std)


def cell_patches(image: Tensor, row: Tensor, column: Tensor, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Gather normalized cells of a (3, H, W) image at (...) cell rows and columns: (..., 3, patch, patch)."""
    patch = config.patch
    height, width = image.shape[1:]
    rows, columns = (-(-side // (patch * config.grid_multiple)) * config.grid_multiple for side in (height, width))
    ragged = (rows * patch, columns * patch) != (height, width)
    if ragged:
        image = functional.pad(image, (0, columns * patch - width, 0, rows * patch - height))
    # (3, rows * patch, columns * patch) to (rows, columns, 3, patch, patch): a view, no pixel moves
    cells = torch.unflatten(torch.unflatten(image, 2, (columns, patch)), 1, (rows, patch)).permute(1, 3, 0, 2, 4)
    row, column = row.clamp(max=rows - 1), column.clamp(max=columns - 1)
    patches = normalize(cells[row, column], config, dtype)
    if ragged:
        step = torch.arange(patch, device=image.device)
        inside_row = row[..., None] * patch + step < height
        inside_column = column[..., None] * patch + step < width
        # (..., 1, patch, patch) over the channels
        patches = patches * (inside_row[..., :, None] & inside_column[..., None, :]).unsqueeze(-3)
    return patches


def region_patches(
    image: Tensor, row: Tensor, column: Tensor, span: int, config: EncoderConfig, dtype: torch.dtype
) -> Tensor:
    """Gather the cells of (n,) tokens of `span` x `span` cells from (row, column): (n, span, span, 3, patch, patch)."""
    step = torch.arange(span, device=image.device)
    down = (row[:, None, None] + step[:, None]).expand(-1, span, span)
    right = (column[:, None, None] + step[None, :]).expand(-1, span, span)
    return cell_patches(image, down, right, config, dtype)


# Positions.

_SHARPNESS = -0.75
"""Free parameter of the cubic kernel, as in torch's bicubic resizing, which dense models use."""


def read_table(table: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Read an (R, C, D) table at (N,) points given as shares of the image, 0 to 1: (N, D).

    At the centers of the cells of a grid this equals `interpolate(mode="bicubic", align_corners=False)` to that grid.
    """
    rows, columns, dim = table.shape
    row_index, row_weight = _taps(row, rows)
    column_index, column_weight = _taps(column, columns)
    # (N, 4, 4) taps flattened to (N, 16) rows of the flat table
    index = (row_index[:, :, None] * columns + column_index[:, None, :]).flatten(1)
    weight = (row_weight[:, :, None] * column_weight[:, None, :]).flatten(1)
    # One bag per token sums its sixteen weighted rows without an (N, 16, D) tensor.
    return functional.embedding_bag(
        index, table.reshape(rows * columns, dim), per_sample_weights=weight.to(table.dtype), mode="sum"
    )


def _taps(share: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return four table indices and their cubic weights per point, both (N, 4); the edge repeats."""
    source = share.double() * size - 0.5
    below = source.floor()
    offsets = torch.arange(-1, 3, device=share.device)
    distance = (source[:, None] - (below[:, None] + offsets)).abs()
    near = ((_SHARPNESS + 2) * distance - (_SHARPNESS + 3)) * distance * distance + 1
    far = ((_SHARPNESS * distance - 5 * _SHARPNESS) * distance + 8 * _SHARPNESS) * distance - 4 * _SHARPNESS
    weight = torch.where(distance <= 1, near, far)
    index = (below.long()[:, None] + offsets).clamp(0, size - 1)
    return index, weight


# Embeddings.

_CELLS_AT_ONCE = 2048
"""Most cells whose pixels are floats at one time; at low budgets all of them would exceed the memory of the blocks."""


class FusionStage(nn.Module):
    """Fusion of one coarse size: halve the grid of base patches until one is left, then a linear map, zero at first."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # A 2 x 2 convolution of stride 2, as a linear map of four neighbors: the same parameters.
        self.reduce = Linear(4 * dim, dim)
        self.out = Linear(dim, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, base: Tensor) -> Tensor:
        """(n, span, span, D) embedded base patches to (n, D), zero until trained."""
        while base.shape[1] > 1:
            half = base.shape[1] // 2
            # (n, half, 2, half, 2, D) to (n, half, half, 4 D)
            fours = torch.unflatten(torch.unflatten(base, 2, (half, 2)), 1, (half, 2)).permute(0, 1, 3, 2, 4, 5)
            base = self.reduce(fours.flatten(3))
        fused: Tensor = self.out(base[:, 0, 0])
        return fused


class Fusion(nn.Module):
    """Features of the base patches under a coarse token: a second patch projection and a stage per size."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.projection = Linear(3 * config.patch**2, config.dim)
        self.stages = nn.ModuleDict({str(size // CELL): FusionStage(config.dim) for size in config.fusion})

    def forward(self, cells: Tensor) -> Tensor:
        """(n, span, span, 3, patch, patch) cells of coarse tokens to the (n, D) added to their embeddings."""
        stage = self.stages[str(cells.shape[1])]
        fused: Tensor = stage(self.projection(cells.flatten(3)))
        return fused


class Embedding(nn.Module):
    """Everything before the first block: projection, fusion, position table, prefix tokens."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = Linear(3 * config.patch**2, config.dim)
        self.table = nn.Parameter(torch.empty(*config.table, config.dim))
        self.prefix = nn.Parameter(torch.empty(config.prefix, config.dim))
        self.fusion = Fusion(config) if config.fusion else None
        for parameter in (self.projection.weight, self.table, self.prefix):
            nn.init.trunc_normal_(parameter, std=0.02)
        nn.init.zeros_(self.projection.bias)
        self._merged: dict[int, Merged] = {}

    def forward(self, images: Sequence[Tensor], packing: Packing, layout: Layout) -> Tensor:
        """Embed B images, each (3, H, W), as the packed (N, D) sequence."""
        # The table's precision: the projection may be in half precision, residuals are not.
        sequence = self.table.new_empty(len(packing), self.config.dim)
        if self.config.prefix:
            sequence[layout.prefix.flatten()] = self.prefix.repeat(len(images), 1)
        for number, image in enumerate(images):
            for span, members in layout.members[number].items():
                for chosen in torch.split(members, _CELLS_AT_ONCE // span**2):
                    vectors = self._embedded(image, layout.row[chosen], layout.column[chosen], span)
                    position = self.position(layout, chosen, span)
                    sequence[layout.slot[chosen]] = vectors.to(sequence.dtype) + position
        return sequence

    def _embedded(self, image: Tensor, row: Tensor, column: Tensor, span: int) -> Tensor:
        """Embed (n,) tokens of one span of a (3, H, W) image without position: (n, D)."""
        merged = self._merged_map(span) if span > 1 and is_rewritten(image) else None
        cells = region_patches(image, row, column, span, self.config, self.table.dtype)
        if merged is not None:
            return linear(cells.flatten(1), merged.weight, merged.bias)
        vectors: Tensor = self.projection(resample(cells, self.config.resampling).flatten(1))
        if self.fusion is not None and str(span) in self.fusion.stages:
            vectors = vectors + self.fusion(cells)
        return vectors

    def _merged_map(self, span: int) -> Merged | None:
        """Return the merged map of one span, kept while the parameters do not change; None if that cannot be told."""
        stage = None if self.fusion is None or str(span) not in self.fusion.stages else self.fusion.stages[str(span)]
        fused = None if self.fusion is None or stage is None else (self.fusion.projection, cast(FusionStage, stage))
        parameters = [p for module in (self.projection, *(fused or ())) for p in module.parameters()]
        marks = marks_of(parameters)
        known = self._merged.get(span)
        if marks is not None and (known is None or known.marks != marks):
            weights = merge(self.projection, fused, span, self.config.resampling)
            known = self._merged[span] = Merged(*weights, marks, tuple(p.detach() for p in parameters))
        return None if marks is None else known

    def position(self, layout: Layout, chosen: Tensor, span: int) -> Tensor:
        """Read the position table for the (n,) chosen tokens of one span: (n, D)."""
        rows, columns = layout.grid_rows[chosen], layout.grid_columns[chosen]
        if self.config.position != "mean" or span == 1:
            return read_table(self.table, layout.center_row[chosen] / rows, layout.center_column[chosen] / columns)
        step = torch.arange(span, device=rows.device)
        # Every cell under the token: (n, span), clamped to the grid at a ragged edge.
        down = torch.minimum(layout.canvas_row[chosen][:, None] + step, rows[:, None] - 1) + 0.5
        right = torch.minimum(layout.canvas_column[chosen][:, None] + step, columns[:, None] - 1) + 0.5
        # (n, span, span) points, flat for the table, then the mean over each token's
        down_share = (down / rows[:, None])[:, :, None].expand(-1, -1, span)
        right_share = (right / columns[:, None])[:, None, :].expand(-1, span, -1)
        cells = read_table(self.table, down_share.flatten(), right_share.flatten())
        return torch.unflatten(cells, 0, (-1, span * span)).mean(dim=1)


def project_grid(embedding: Embedding, images: Tensor) -> Tensor:
    """Embed every cell: normalized (B, 3, rows * patch, columns * patch) to (B, rows * columns, D)."""
    patch = embedding.config.patch
    weight = torch.unflatten(embedding.projection.weight, 1, (3, patch, patch))
    grid = functional.conv2d(images, weight, embedding.projection.bias, stride=patch)
    # (R, C, D) to (1, D, R, C), resized to the grid
    table = embedding.table.permute(2, 0, 1)[None]
    if table.shape[2:] != grid.shape[2:]:
        table = functional.interpolate(table, size=grid.shape[2:], mode="bicubic", align_corners=False)
    return (grid + table).flatten(2).transpose(1, 2)
