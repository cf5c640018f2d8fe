"""Patches to packed token vectors: one projection for every size, the fusion of coarse tokens, absolute position."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import Packing
from vgtok.encode.patches import region_patches, resample
from vgtok.encode.placement import Placement
from vgtok.encode.position import read_table
from vgtok.tokenize.geometry import CELL

_CELLS_AT_ONCE = 2048
"""Cells whose pixels are floats at one time: at low budgets they would outweigh everything the blocks hold."""


class FusionStage(nn.Module):
    """One coarse size: the base patches it covers, halved per side until one is left, through a zero linear map."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # A 2 x 2 convolution of stride 2, as a linear map of four neighbours: the same parameters.
        self.reduce = nn.Linear(4 * dim, dim)
        self.out = nn.Linear(dim, dim)
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
    """What a coarse token learns of the base patches under it: a second patch projection and a stage per size."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.projection = nn.Linear(3 * config.patch**2, config.dim)
        self.stages = nn.ModuleDict({str(size // CELL): FusionStage(config.dim) for size in config.fusion})

    def forward(self, cells: Tensor) -> Tensor:
        """(n, span, span, 3, patch, patch) cells of coarse tokens to what is added to their vectors, (n, D)."""
        stage = self.stages[str(cells.shape[1])]
        fused: Tensor = stage(self.projection(cells.flatten(3)))
        return fused


class Embedding(nn.Module):
    """Everything before the first block: projection, fusion, position table, prefix tokens."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Linear(3 * config.patch**2, config.dim)
        self.table = nn.Parameter(torch.empty(*config.table, config.dim))
        self.prefix = nn.Parameter(torch.empty(config.prefix, config.dim))
        self.fusion = Fusion(config) if config.fusion else None
        for parameter in (self.projection.weight, self.table, self.prefix):
            nn.init.trunc_normal_(parameter, std=0.02)
        nn.init.zeros_(self.projection.bias)

    def forward(self, images: Sequence[Tensor], packing: Packing, placement: Placement) -> Tensor:
        """B images, each (3, H, W), laid out by `packing`, to the packed (N, D) sequence."""
        sequence = self.projection.weight.new_empty(len(packing), self.config.dim)
        if self.config.prefix:
            sequence[placement.prefix.flatten()] = self.prefix.repeat(len(images), 1)
        for number, image in enumerate(images):
            for span, members in placement.members[number].items():
                for chosen in torch.split(members, _CELLS_AT_ONCE // span**2):
                    vectors = self._embedded(image, placement.row[chosen], placement.column[chosen], span)
                    position = self.position(placement, chosen, span)
                    sequence[placement.place[chosen]] = vectors.to(sequence.dtype) + position
        return sequence

    def _embedded(self, image: Tensor, row: Tensor, column: Tensor, span: int) -> Tensor:
        """(n,) tokens of one span in a (3, H, W) image to (n, D), position left out."""
        cells = region_patches(image, row, column, span, self.config, self.projection.weight.dtype)
        vectors: Tensor = self.projection(resample(cells, self.config.resampling).flatten(1))
        if self.fusion is not None and str(span) in self.fusion.stages:
            vectors = vectors + self.fusion(cells)
        return vectors

    def position(self, placement: Placement, chosen: Tensor, span: int) -> Tensor:
        """(n, D) of the position table for the (n,) chosen tokens of one span."""
        rows, columns = placement.grid_rows[chosen], placement.grid_columns[chosen]
        if self.config.position != "mean" or span == 1:
            return read_table(
                self.table, placement.centre_row[chosen] / rows, placement.centre_column[chosen] / columns
            )
        step = torch.arange(span, device=rows.device)
        # Every cell under the token: (n, span), clamped to the grid at a ragged edge.
        down = torch.minimum(placement.frame_row[chosen][:, None] + step, rows[:, None] - 1) + 0.5
        right = torch.minimum(placement.frame_column[chosen][:, None] + step, columns[:, None] - 1) + 0.5
        # (n, span, span) points, flat for the table, then the mean over each token's
        down_share = (down / rows[:, None])[:, :, None].expand(-1, -1, span)
        right_share = (right / columns[:, None])[:, None, :].expand(-1, span, -1)
        cells = read_table(self.table, down_share.flatten(), right_share.flatten())
        return torch.unflatten(cells, 0, (-1, span * span)).mean(dim=1)


def project_grid(embedding: Embedding, images: Tensor) -> Tensor:
    """The dense model's embedding: normalised (B, 3, rows * patch, columns * patch) to (B, rows * columns, D)."""
    patch = embedding.config.patch
    weight = torch.unflatten(embedding.projection.weight, 1, (3, patch, patch))
    grid = functional.conv2d(images, weight, embedding.projection.bias, stride=patch)
    # (R, C, D) to (1, D, R, C), resized to the grid
    table = embedding.table.permute(2, 0, 1)[None]
    if table.shape[2:] != grid.shape[2:]:
        table = functional.interpolate(table, size=grid.shape[2:], mode="bicubic", align_corners=False)
    return (grid + table).flatten(2).transpose(1, 2)
