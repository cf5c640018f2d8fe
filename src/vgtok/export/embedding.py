"""Pixels to the vectors of numbered tokens, in shapes that no partition changes.

Every cell, node and root of the frame becomes a patch, and the partition picks its own. Resampling the whole frame
costs little; fusion of the whole frame costs about what fusion of a partition does, as coarse tokens cover most of it
at the budgets the tokenizer is for.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.config import Resampling
from vgtok.encode.embed import Embedding, Fusion
from vgtok.encode.patches import resample
from vgtok.export.layout import SPANS, uniform_grids
from vgtok.tokenize.geometry import CELL, ROOT, Extent


class EmbeddingGraph(nn.Module):
    """An embedding's projection, fusion and prefix over all tokens of a canvas, `position` (T, D) given."""

    mean: Tensor
    std: Tensor
    position: Tensor

    def __init__(self, embedding: Embedding, extent: Extent, position: Tensor) -> None:
        super().__init__()
        self.embedding, self.extent = embedding, extent
        config = embedding.config
        self.register_buffer("mean", torch.tensor(config.mean))
        self.register_buffer("std", torch.tensor(config.std))
        self.register_buffer("position", position)
        for span in SPANS[1:]:
            down = resampling_matrix(span, config.resampling)
            self.register_buffer(f"down{span}", down)
            # Across, pixels are interleaved with their three channels: (48 span, 48).
            self.register_buffer(f"across{span}", torch.kron(down, torch.eye(3)).T.contiguous())

    def forward(self, frame: Tensor, valid: Tensor, number: Tensor) -> Tensor:
        """(H, W, 3) uint8, whole roots of which `valid` (2,) px are real, and (N,) numbers to (P + N, D)."""
        pixels = self._normalised(frame, valid)
        rows, columns = self.extent.root_rows * ROOT // CELL, self.extent.root_columns * ROOT // CELL
        # Patches are (16, 48): rows of pixels, channels innermost, as the frame has them.
        cells = pixels.reshape(rows, CELL, columns, 3 * CELL).transpose(1, 2).flatten(2)
        patches = [self._real(cells, 1)]
        for span in SPANS[1:]:
            down, across = self.get_buffer(f"down{span}"), self.get_buffer(f"across{span}")
            # (rows / span, 16 span, 48 columns) to (rows / span, 16, columns / span, 48)
            lower = down @ pixels.reshape(rows // span, span * CELL, columns * 3 * CELL)
            narrower = lower.reshape(rows // span, CELL, columns // span, span * 3 * CELL) @ across
            patches.append(self._real(narrower.transpose(1, 2).flatten(2), span))
        vectors = _projected(self.embedding.projection, torch.cat(patches)[number]) + self.position[number]
        if self.embedding.fusion is not None:
            vectors = vectors + self._fused(self.embedding.fusion, cells)[number]
        return torch.cat([self.embedding.prefix, vectors]) if self.embedding.config.prefix else vectors

    def _normalised(self, frame: Tensor, valid: Tensor) -> Tensor:
        """(H, W, 3) floats, zero beyond the valid area; where the grid of cells ends, its last cells repeat."""
        height, width = frame.shape[:2]
        inside_rows, inside_columns = torch.arange(height) < valid[0], torch.arange(width) < valid[1]
        # Channels stay interleaved, (H, 3 W): a last dimension of three is slow to compute on.
        scale = (inside_columns[:, None] / self.std).flatten()
        rows = (frame.reshape(height, -1).float() - self.mean.repeat(width)) * scale * inside_rows[:, None]
        pixels = rows.reshape(height, width, 3)
        for dimension, count in enumerate((self.extent.rows(CELL), self.extent.columns(CELL))):
            place = np.arange(frame.shape[dimension])
            if place.size > count * CELL:
                repeated = np.where(place < count * CELL, place, (count - 1) * CELL + place % CELL)
                pixels = pixels.index_select(dimension, torch.from_numpy(repeated))
        return pixels

    def _fused(self, fusion: Fusion, cells: Tensor) -> Tensor:
        """(rows, columns, 768) cells to what fusion adds to all tokens, (T, D): nothing to cells."""
        base = _projected(fusion.projection, cells)
        rows, columns, dim = base.shape
        added = []
        for span, grid in zip(SPANS, uniform_grids(self.extent), strict=True):
            if str(span) not in fusion.stages:
                added.append(base.new_zeros(grid[0] * grid[1], dim))
                continue
            # (rows / span, span, columns / span, span, D) to (n, span, span, D)
            under = base.reshape(rows // span, span, columns // span, span, dim).transpose(1, 2).flatten(0, 1)
            fused = torch.unflatten(fusion.stages[str(span)](under), 0, (rows // span, columns // span))
            added.append(self._real(fused, span))
        return torch.cat(added)

    def _real(self, grid: Tensor, span: int) -> Tensor:
        """(rows, columns, C) over whole roots to (n, C): the tokens of one span that hold a real pixel."""
        return grid[: self.extent.rows(span * CELL), : self.extent.columns(span * CELL)].flatten(0, 1)


def resampling_matrix(span: int, resampling: Resampling) -> Tensor:
    """(16, 16 span): the separable, linear map of a region's rows to one patch's, read off the unit vectors."""
    side = span * CELL
    # Region n is 1 on its row n: (side, 3, side, side), then as (side, span, span, 3, 16, 16) cells
    regions = torch.eye(side).view(side, 1, side, 1).expand(-1, 3, -1, side)
    cells = torch.unflatten(torch.unflatten(regions, 3, (span, CELL)), 2, (span, CELL)).permute(0, 2, 4, 1, 3, 5)
    return resample(cells, resampling)[:, 0, :, 0].T.contiguous()


def _projected(projection: nn.Linear, patches: Tensor) -> Tensor:
    """Apply a projection of (3, 16, 16) patches to patches of (..., 16 * 16 * 3)."""
    weight = torch.unflatten(projection.weight, 1, (3, CELL, CELL)).permute(0, 2, 3, 1).flatten(1)
    return functional.linear(patches, weight, projection.bias)
