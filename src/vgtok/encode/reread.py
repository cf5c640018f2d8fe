"""What the pixels of a cell under a coarse token add to its vector; in the paper they reach it through the token alone.

Images and the (cells, D) vectors behind the last block enter, the vectors leave. Every 16-px cell that was read as a
part of 32 or 64 px is read once more by a small map of its own, zero at first. The head then sees few-pixel objects
that the coarse token has lost.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.config import EncoderConfig
from vgtok.encode.embed import CELLS_AT_ONCE, Layout, cell_patches
from vgtok.encode.linear import Linear


class Reread(nn.Module):
    """Two linear maps with an exact GELU between, from a cell's pixels to what they add to its vector."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.read = Linear(3 * config.patch**2, config.reread)
        self.out = Linear(config.reread, config.dim)
        nn.init.trunc_normal_(self.read.weight, std=0.02)
        nn.init.zeros_(self.read.bias)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, vectors: Tensor, images: Sequence[Tensor], grids: Sequence[tuple[int, int]], layout: Layout
    ) -> Tensor:
        """Add to the (cells, D) vectors of B images, each (3, H, W) on a (rows, columns) grid, in place."""
        first = 0
        for image, (rows, columns) in zip(images, grids, strict=True):
            coarse = (layout.cell_span[first : first + rows * columns] > 1).nonzero().flatten()
            for cells in torch.split(coarse, CELLS_AT_ONCE):
                row, column = torch.div(cells, columns, rounding_mode="floor"), cells % columns
                pixels = cell_patches(image, row, column, self.config, vectors.dtype)
                vectors.index_add_(0, first + cells, self.added(self.read(pixels.flatten(1))).to(vectors.dtype))
            first += rows * columns
        return vectors

    def added(self, hidden: Tensor) -> Tensor:
        """Map what `read` returns, (n, reread), to what is added, (n, D)."""
        added: Tensor = self.out(functional.gelu(hidden))
        return added
