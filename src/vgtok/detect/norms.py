"""Norms of (B, C, rows, columns) maps, and the convolution that auxiliary heads put in front of one."""

import torch
from torch import Tensor, nn
from torch.nn import functional

_GROUPS = 32


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of a map, at every place by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, rows, columns) to the same."""
        # The kernel normalises the last dimension; a channels-last view costs no copy.
        last = maps.permute(0, 2, 3, 1)
        return functional.layer_norm(last, last.shape[-1:], self.weight, self.bias, 1e-6).permute(0, 3, 1, 2)


class GroupNorm(nn.GroupNorm):
    """GroupNorm of 32 groups that also takes a map of one cell, which torch's module refuses; small frames end so."""

    def __init__(self, channels: int) -> None:
        super().__init__(_GROUPS, channels)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, rows, columns) to the same."""
        return torch.group_norm(maps, self.num_groups, self.weight, self.bias, self.eps)


class ConvNorm(nn.Module):
    """A 3 x 3 convolution without bias, group norm, ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.gn = GroupNorm(channels)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, rows, columns) to the same."""
        return functional.relu(self.gn(self.conv(maps)))
