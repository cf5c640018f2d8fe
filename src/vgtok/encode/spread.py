"""What a coarse token adds to each cell it covers, beyond the paper: there all its cells are alike.

The packed (N, D) sequence behind the last block enters, the (cells, D) vectors of all cells leave. A low-rank map per
size of token, zero at first, tells the cells apart, so that the head can place an object inside a token.
"""

import torch
from torch import Tensor, nn

from vgtok.encode.config import EncoderConfig
from vgtok.encode.embed import Layout
from vgtok.encode.plain import Linear
from vgtok.tokenize.geometry import CELL, NODE, ROOT


class SpreadStage(nn.Module):
    """One coarse size: a token of `span` x `span` cells to what it adds to each of them."""

    def __init__(self, dim: int, rank: int, span: int) -> None:
        super().__init__()
        self.reduce = Linear(dim, rank)
        self.expand = Linear(rank, span * span * dim)
        nn.init.zeros_(self.expand.weight)
        nn.init.zeros_(self.expand.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(n, D) tokens to (n, span * span, D), row by row; zero until trained."""
        return torch.unflatten(self.expand(self.reduce(tokens)), 1, (-1, tokens.shape[1]))


class Spread(nn.Module):
    """A stage per coarse size, by its side in cells."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(
            {str(size // CELL): SpreadStage(config.dim, config.spread, size // CELL) for size in (NODE, ROOT)}
        )

    def forward(self, sequence: Tensor, layout: Layout) -> Tensor:
        """Return the (cells, D) vectors of all cells for a packed (N, D) sequence."""
        table, place = [sequence], layout.cells
        first, rank = len(sequence), torch.zeros_like(layout.cells[:1]).expand(len(sequence)).clone()
        for name, stage in self.stages.items():
            span = int(name)
            members = [layout.slot[own[span]] for own in layout.members if span in own]
            if not members:
                continue
            slots = torch.cat(members)
            tokens = sequence[slots]
            # (n * span * span, D): a row for every cell under these tokens
            table.append((tokens[:, None] + stage(tokens).to(tokens.dtype)).flatten(0, 1))
            rank[slots] = torch.arange(len(slots), device=rank.device)
            own_row = first + rank[layout.cells] * span**2 + layout.within
            place = torch.where(layout.cell_span == span, own_row, place)
            first += len(table[-1])
        return torch.cat(table).index_select(0, place)
