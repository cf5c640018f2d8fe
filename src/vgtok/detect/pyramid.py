"""The simple feature pyramid: one map of the encoder in, a map per stride out, each level from the map itself."""

from torch import Tensor, nn

from vgtok.detect.norms import ChannelNorm
from vgtok.tokenize.geometry import CELL


class Pyramid(nn.Module):
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


def _name(stride: int) -> str:
    return f"p{stride.bit_length() - 1}"


def _branch(channels: int, dim: int, stride: int) -> nn.Sequential:
    """Resample to the stride, project to `dim`, then a 3 x 3 convolution; norms after each, GELU between."""
    layers: list[nn.Module] = []
    width = channels
    for _ in range((CELL // stride).bit_length() - 1):
        layers += [nn.Upsample(scale_factor=2), *_normed(width, width // 2, 3), nn.GELU()]
        width //= 2
    if stride > CELL:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    if stride == 4 * CELL:
        layers += [*_normed(width, width, 3, stride=2), nn.GELU()]
    return nn.Sequential(*layers, *_normed(width, dim, 1), nn.GELU(), *_normed(dim, dim, 3))


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, ChannelNorm(outputs)]
