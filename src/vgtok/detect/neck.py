"""The neck: one dense feature map to a pyramid of maps, and the norms and convolutions the heads share with it."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.config import Norm
from vgtok.detect.sites import MaskedSites, Sites, convolve, convolve_enlarged, normalize_groups
from vgtok.encode.plain import is_plain, linear
from vgtok.tokenize.geometry import CELL

_GROUPS = 32


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of a map, separately at every cell."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, rows, columns) to the same shape."""
        # The kernel normalizes the last dimension; a channels-last view costs no copy.
        return self.last(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def last(self, values: Tensor) -> Tensor:
        """Map (..., C) to the same shape."""
        return functional.layer_norm(values, values.shape[-1:], self.weight, self.bias, 1e-6)


class GroupNorm(nn.GroupNorm):
    """GroupNorm of 32 groups that accepts maps of one cell, as small canvases have; torch's module refuses them."""

    def __init__(self, channels: int) -> None:
        super().__init__(_GROUPS, channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, rows, columns) to the same shape."""
        return torch.group_norm(maps, self.num_groups, self.weight, self.bias, self.eps)


def map_norm(channels: int, kind: Norm) -> GroupNorm | ChannelNorm:
    """Return a norm of maps: over groups of channels at all positions, or over the channels of every position."""
    return GroupNorm(channels) if kind == "group" else ChannelNorm(channels)


class ConvNorm(nn.Module):
    """A 3 x 3 convolution without bias, a norm and ReLU."""

    def __init__(self, channels: int, norm: Norm = "group") -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        # The name it has in released weights
        self.gn = map_norm(channels, norm)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, rows, columns) to the same shape."""
        return functional.relu(self.gn(self.conv(maps)))

    def at_sites(self, values: Tensor, sites: Sites) -> Tensor:
        """Map the (n, C) values of sites to (n, C)."""
        return self.after_convolution(convolve(values, self.conv.weight, None, sites), sites)

    def after_convolution(self, convolved: Tensor, sites: Sites) -> Tensor:
        """Normalize and rectify the (n, C) convolved values of sites."""
        norm = self.gn
        return functional.relu(
            norm.last(convolved) if isinstance(norm, ChannelNorm) else normalize_groups(convolved, norm, sites)
        )


class UpsampledConv(nn.Conv2d):
    """A 3 x 3 convolution without bias of a map upsampled by 2 with nearest neighbors.

    Each of the four cells a cell becomes reads a 2 x 2 neighborhood of the small map: three taps of the kernel fall on
    two cells. The small map is therefore convolved once with four kernels, at 4/9 of the multiplications.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, rows, columns) to (B, D, 2 rows, 2 columns)."""
        if is_plain():
            enlarged = functional.interpolate(maps, scale_factor=2, mode="nearest")
            return functional.conv2d(enlarged, self.weight, padding=1)
        rows, columns = maps.shape[2:]
        # (B, 4 D, rows + 1, columns + 1): the place (r, c) sees cells r - 1, r and c - 1, c
        read = functional.conv2d(maps, torch.cat(self.kernels()), padding=1)
        parts = read.chunk(4, dim=1)
        corners = [(row, column) for row in (0, 1) for column in (0, 1)]
        cells = [p[:, :, r : r + rows, c : c + columns] for p, (r, c) in zip(parts, corners, strict=True)]
        # (B, D, rows, columns, 2, 2) to (B, D, rows, 2, columns, 2)
        four = torch.unflatten(torch.stack(cells, dim=-1), -1, (2, 2)).permute(0, 1, 2, 4, 3, 5)
        return four.flatten(4, 5).flatten(2, 3)

    def kernels(self) -> list[Tensor]:
        """Return the (D, C, 2, 2) kernels of the four cells that a cell becomes, row by row."""
        return [part for half in _halves(self.weight, 2) for part in _halves(half, 3)]


class FeaturePyramid(nn.Module):
    """The neck of the detector: one branch per stride, `p2` for stride 4 to `p6` for stride 64."""

    def __init__(self, channels: int, dim: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        for stride in strides:
            self.add_module(_name(stride), _branch(channels, dim, stride))
        self.strides = strides

    def forward(self, features: Tensor, sites: Sites | None = None) -> list[Tensor]:
        """Map (B, C, rows, columns) to one (B, dim, rows_l, columns_l) map per stride, finest first.

        With `sites` of the finest, the first is (1, n, dim) instead.
        """
        branches = [self.get_submodule(_name(stride)) for stride in self.strides]
        if sites is None:
            return [branch(features) for branch in branches]
        return [_at_sites(branches[0], features, sites), *(branch(features) for branch in branches[1:])]


def level_shapes(rows: int, columns: int, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (rows_l, columns_l) of every level over a grid of 16-px cells; halving rounds up."""
    return [(-(-rows * CELL // stride), -(-columns * CELL // stride)) for stride in strides]


def _halves(weight: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Fold the three taps of a (D, C, kernel, kernel) weight along `dim` onto two cells, for each half of a cell."""
    before, middle, after = weight.unbind(dim)
    return torch.stack([before, middle + after], dim=dim), torch.stack([before + middle, after], dim=dim)


def _name(stride: int) -> str:
    return f"p{stride.bit_length() - 1}"


def _branch(channels: int, dim: int, stride: int) -> nn.Sequential:
    """Resample to the stride, project to `dim`, apply a 3 x 3 convolution; a norm after each, GELU between."""
    layers: list[nn.Module] = []
    width = channels
    for _ in range((CELL // stride).bit_length() - 1):
        enlarged = UpsampledConv(width, width // 2, 3, bias=False)
        # Saved models number the layers of a branch, and upsampling used to be a layer of its own.
        layers += [nn.Identity(), enlarged, ChannelNorm(width // 2), nn.GELU()]
        width //= 2
    if stride > CELL:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    if stride == 4 * CELL:
        layers += [*_normed(width, width, 3, stride=2), nn.GELU()]
    return nn.Sequential(*layers, *_normed(width, dim, 1), nn.GELU(), *_normed(dim, dim, 3))


def _at_sites(branch: nn.Module, features: Tensor, sites: Sites) -> Tensor:
    """Run a branch that enlarges: (1, C, rows, columns) to the (1, n, dim) values of sites; up to there, everywhere."""
    layers = list(branch.children())
    last = max(number for number, layer in enumerate(layers) if isinstance(layer, UpsampledConv))
    for layer in layers[:last]:
        features = layer(features)
    enlarge = cast(UpsampledConv, layers[last])
    if isinstance(sites, MaskedSites):
        enlarged: Tensor = enlarge(features)
        values = enlarged[0].flatten(1).T
    else:
        values = convolve_enlarged(features[0].permute(1, 2, 0), enlarge.kernels(), sites)
    for layer in layers[last + 1 :]:
        if isinstance(layer, ChannelNorm):
            values = layer.last(values)
        elif isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
            values = linear(values, layer.weight.flatten(1))
        elif isinstance(layer, nn.Conv2d):
            values = convolve(values, layer.weight, None, sites)
        else:
            values = layer(values)
    return values[None]


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, ChannelNorm(outputs)]
