"""The positions of the finest level that a sparse head computes, chosen by the partition, and convolutions on them.

Tokens enter; sites leave, with the operations the neck and the heads run on the (n, C) values of n sites.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.plain import is_rewritten, linear
from vgtok.tokenize.geometry import CELL, NODE, ROOT
from vgtok.tokenize.tokens import Tokens

SiteRule = Literal["roots", "tokens"]
"""Which positions are sites.

"roots": all but those in unsplit 64-px roots, which nothing stands for. "tokens": every token has as many as a 16-px
token, spread over it; each stands for the block of positions around it. That is faster but loses small objects in 32-px
tokens; it is there to be compared.
"""

DEFAULT_RULE: SiteRule = "roots"
"""The rule of a sparse head."""

_SITES_IN_CACHE = 512
"""Sites per chunk of a convolution: the nine values each reads then stay in a cache."""


@dataclass(frozen=True)
class Sites:
    """The n positions of a level of `shape` (rows, columns) that are computed.

    `kept` (n,) are their flat positions, in order; `source` (rows * columns,) is the site every position reads, n for
    none, which is zero.
    """

    shape: tuple[int, int]
    kept: Tensor
    source: Tensor

    def __len__(self) -> int:
        return len(self.kept)

    def expanded(self, values: Tensor) -> Tensor:
        """Copy (B, n + others, C) values, of the sites and of further levels, to (B, S, C): one for every position."""
        here, others = values[:, : len(self)], values[:, len(self) :]
        return torch.cat([functional.pad(here, (0, 0, 0, 1)).index_select(1, self.source), others], dim=1)

    def map(self, values: Tensor) -> Tensor:
        """Copy (1, n, C) values to a map, (1, C, rows, columns)."""
        return torch.unflatten(self.expanded(values), 1, self.shape).permute(0, 3, 1, 2)

    def chosen(self, values: Tensor, dim: int = 0) -> Tensor:
        """Select the sites, and all positions of further levels, along a dimension of all S positions."""
        here, others = torch.split(values, [len(self.source), values.shape[dim] - len(self.source)], dim=dim)
        return torch.cat([here.index_select(dim, self.kept), others], dim=dim)

    def ranked(self, scores: Tensor, lowest: float) -> Tensor:
        """Return (..., n + others) scores of which the best are to be taken; what is no site gets the lowest."""
        return scores

    @cached_property
    def bordered(self) -> Tensor:
        """((rows + 2) * (columns + 2),) site that each position of the level with a border reads; n in the border."""
        return functional.pad(self.source.view(1, *self.shape), (1, 1, 1, 1), value=len(self)).flatten()

    @cached_property
    def around(self) -> Tensor:
        """(n, 9) sites of the positions around each, row by row; n where there is none."""
        columns = self.shape[1]
        corner = self.kept // columns * (columns + 2) + self.kept % columns
        steps = torch.tensor([[down * (columns + 2) + right for right in range(3)] for down in range(3)])
        return self.bordered[corner[:, None] + steps.flatten().to(corner.device)]

    @cached_property
    def counts(self) -> Tensor:
        """(n,) number of positions that read each site."""
        return torch.bincount(self.source, minlength=len(self) + 1)[: len(self)].float()


@dataclass(frozen=True)
class MaskedSites(Sites):
    """Sites in a graph of fixed shapes: every position has a value, and one that is no site reads as zero.

    `kept` are all positions, and `source` is rows * columns for those that are no sites.
    """

    @classmethod
    def of(cls, mask: Tensor) -> "MaskedSites":
        """Return the sites where a (rows, columns) mask is true."""
        every = torch.arange(mask.numel(), device=mask.device)
        return cls((mask.shape[0], mask.shape[1]), every, torch.where(mask.flatten(), every, mask.numel()))

    def expanded(self, values: Tensor) -> Tensor:
        """Return (B, S, C) values with zeros for what is no site."""
        here, others = values[:, : len(self)], values[:, len(self) :]
        return torch.cat([here * self._is_site[:, None], others], dim=1)

    def chosen(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return the values of all S positions along a dimension."""
        return values

    def ranked(self, scores: Tensor, lowest: float) -> Tensor:
        """Return (..., n + others) scores with the lowest for what is no site."""
        others = scores.shape[-1] - len(self)
        return torch.where(functional.pad(self._is_site, (0, others), value=True), scores, lowest)

    @cached_property
    def counts(self) -> Tensor:
        """(rows * columns,) ones at sites, zeros elsewhere."""
        return self._is_site.float()

    @property
    def _is_site(self) -> Tensor:
        return self.source < len(self)


def sites_of(
    tokens: Tokens, stride: int, shape: tuple[int, int], device: torch.device, rule: SiteRule = DEFAULT_RULE
) -> Sites | None:
    """Return the sites of a level of this stride and (rows, columns); None if every position is one.

    Levels of 16 px and coarser have no more positions than the dense grid has cells: there every position is a site.
    """
    sizes = tokens.cell_sizes()
    if stride >= CELL or (sizes <= (CELL if rule == "tokens" else NODE)).all():
        return None
    repeat = CELL // stride
    # Padded cells, of size 0, are computed like fine ones.
    fine = np.zeros(shape, dtype=np.int64)
    inside = sizes.repeat(repeat, axis=0).repeat(repeat, axis=1)[: shape[0], : shape[1]]
    fine[: inside.shape[0], : inside.shape[1]] = inside
    # Side of the block of positions that one site stands for, and the site: in the middle, or the last inside the map
    block = np.maximum(fine // CELL, 1) if rule == "tokens" else np.ones_like(fine)
    row, column = np.indices(shape)
    own_row, own_column = (
        np.minimum(place // block * block + block // 2, last - 1)
        for place, last in zip((row, column), shape, strict=True)
    )
    skipped = np.zeros(shape, dtype=np.bool_) if rule == "tokens" else fine == ROOT
    kept = (own_row == row) & (own_column == column) & ~skipped
    number = np.where(skipped, kept.sum(), (np.cumsum(kept) - 1)[own_row * shape[1] + own_column])
    return Sites(shape, *(torch.from_numpy(array).to(device) for array in (np.flatnonzero(kept), number.ravel())))


def convolve(values: Tensor, weight: Tensor, bias: Tensor | None, sites: Sites) -> Tensor:
    """Apply a (D, C, 3, 3) kernel at every site of (n, C) values: (n, D)."""
    if isinstance(sites, MaskedSites):
        return functional.conv2d(sites.map(values[None]), weight, bias, padding=1)[0].flatten(1).T
    # The row behind the last is zero.
    return _mapped(functional.pad(values, (0, 0, 0, 1)), sites.around, weight.permute(0, 2, 3, 1).flatten(1), bias)


def convolve_enlarged(cells: Tensor, kernels: list[Tensor], sites: Sites) -> Tensor:
    """Return the (n, D) values that convolving an enlarged map has at the sites.

    The map of (rows, columns, C) cells is half as fine as the sites. The (D, C, 2, 2) kernels belong to the four
    positions a cell becomes, row by row.
    """
    columns = cells.shape[1]
    bordered = functional.pad(cells, (0, 0, 1, 1, 1, 1)).flatten(0, 1)
    row, column = sites.kept // sites.shape[1], sites.kept % sites.shape[1]
    kind = row % 2 * 2 + column % 2
    # The first of the four cells a position reads, on the bordered map
    first = (row + 1) // 2 * (columns + 2) + (column + 1) // 2
    steps = torch.tensor([0, 1, columns + 2, columns + 3], device=first.device)
    members = [(kind == number).nonzero().flatten() for number in range(4)]
    found = torch.cat(
        [
            _mapped(bordered, first[chosen][:, None] + steps, kernel.permute(0, 2, 3, 1).flatten(1), None)
            for chosen, kernel in zip(members, kernels, strict=True)
        ]
    )
    return torch.empty_like(found).index_copy_(0, torch.cat(members), found)


def normalize_groups(values: Tensor, norm: nn.GroupNorm, sites: Sites) -> Tensor:
    """Normalize (n, C) values as the norm does a map in which every position has the value it reads."""
    values = values.float()
    share = sites.counts / sites.counts.sum()
    groups = (norm.num_groups, -1)

    def mean(of: Tensor) -> Tensor:
        """Return the (C,) means of each channel's group."""
        grouped = torch.unflatten(share @ of, 0, groups).mean(dim=1, keepdim=True)
        return grouped.expand(-1, of.shape[1] // norm.num_groups).flatten()

    centered = values - mean(values)
    factor = torch.rsqrt(mean(centered * centered) + norm.eps)
    return torch.addcmul(norm.bias, centered, factor * norm.weight)


def _mapped(table: Tensor, index: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map (n, k) rows of an (m, C) table, side by side, by a (D, k * C) weight and a (D,) bias: (n, D)."""
    table = table.to(weight.dtype)

    def mapped(chosen: Tensor) -> Tensor:
        rows = torch.unflatten(table.index_select(0, chosen.flatten()), 0, chosen.shape)
        return linear(rows.flatten(1), weight, bias)

    if not is_rewritten(table):
        return mapped(index)
    return torch.cat([mapped(chunk) for chunk in torch.split(index, _SITES_IN_CACHE)])
