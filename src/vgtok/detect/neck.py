"""The neck: one dense map to a pyramid of maps."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.tokenize.geometry import CELL

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


class UpsampledConv(nn.Conv2d):
    """A 3 x 3 convolution without bias of a map enlarged twice by its nearest cells.

    Each of the four cells a cell becomes sees a 2 x 2 neighbourhood of the small map, three taps of the kernel falling
    on two cells. So the small map is convolved once by four kernels, with 4/9 of the multiplications.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, rows, columns) to (B, D, 2 rows, 2 columns)."""
        rows, columns = maps.shape[2:]
        kernels = [part for half in _halves(self.weight, 2) for part in _halves(half, 3)]
        # (B, 4 D, rows + 1, columns + 1): the place (r, c) sees cells r - 1, r and c - 1, c
        read = functional.conv2d(maps, torch.cat(kernels), padding=1)
        parts = read.chunk(4, dim=1)
        corners = [(row, column) for row in (0, 1) for column in (0, 1)]
        cells = [p[:, :, r : r + rows, c : c + columns] for p, (r, c) in zip(parts, corners, strict=True)]
        # (B, D, rows, columns, 2, 2) to (B, D, rows, 2, columns, 2)
        four = torch.unflatten(torch.stack(cells, dim=-1), -1, (2, 2)).permute(0, 1, 2, 4, 3, 5)
        return four.flatten(4, 5).flatten(2, 3)


class FeaturePyramid(nn.Module):
    """A branch `p2` to `p6` per stride 4 to 64."""

    def __init__(self, channels: int, dim: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        for stride in strides:
            self.add_module(_name(stride), _branch(channels, dim, stride))
        self.strides = strides

    def forward(self, features: Tensor) -> list[Tensor]:
        """(B, C, rows, columns) to a (B, dim, rows_l, columns_l) map per stride, finest first."""
        return [self.get_submodule(_name(stride))(features) for stride in self.strides]


def level_shapes(rows: int, columns: int, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(rows_l, columns_l) of every level over a grid of 16-px cells; halving rounds up."""
    return [(-(-rows * CELL // stride), -(-columns * CELL // stride)) for stride in strides]


def _halves(weight: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """A (D, C, kernel, kernel) weight whose three taps along `dim` fall on two cells, for the first and second half."""
    before, middle, after = weight.unbind(dim)
    return torch.stack([before, middle + after], dim=dim), torch.stack([before + middle, after], dim=dim)


def _name(stride: int) -> str:
    return f"p{stride.bit_length() - 1}"


def _branch(channels: int, dim: int, stride: int) -> nn.Sequential:
    """Resample to the stride, project to `dim`, then a 3 x 3 convolution; norms after each, GELU between."""
    layers: list[nn.Module] = []
    width = channels
    for _ in range((CELL // stride).bit_length() - 1):
        enlarged = UpsampledConv(width, width // 2, 3, bias=False)
        # Saved models number the layers of a branch, and enlarging was one of its own.
        layers += [nn.Identity(), enlarged, ChannelNorm(width // 2), nn.GELU()]
        width //= 2
    if stride > CELL:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    if stride == 4 * CELL:
        layers += [*_normed(width, width, 3, stride=2), nn.GELU()]
    return nn.Sequential(*layers, *_normed(width, dim, 1), nn.GELU(), *_normed(dim, dim, 3))


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, ChannelNorm(outputs)]
