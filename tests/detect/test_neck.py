"""The feature pyramid: norms, upsampled convolutions and the shapes of its levels."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vgtok.detect.neck import ChannelNorm, FeaturePyramid, GroupNorm, UpsampledConv, level_shapes


def test_channel_norm_normalizes_each_place() -> None:
    norm = ChannelNorm(6)
    maps = torch.randn(2, 6, 3, 4) * 5 + 2
    expected = (maps - maps.mean(1, keepdim=True)) / (maps.var(1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm(maps), expected, atol=1e-5, rtol=1e-5)


def test_group_norm_is_torchs_and_takes_one_cell() -> None:
    norm, torchs = GroupNorm(64), torch.nn.GroupNorm(32, 64)
    maps = torch.randn(2, 64, 3, 4)
    assert torch.equal(norm(maps), torchs(maps))
    assert norm(torch.randn(1, 64, 1, 1)).isfinite().all()


STRIDES = (4, 8, 16, 32, 64)


@pytest.mark.parametrize(("rows", "columns"), [(8, 12), (7, 5), (1, 1)])
def test_levels_have_the_shapes_they_say(rows: int, columns: int) -> None:
    maps = FeaturePyramid(32, 16, STRIDES)(torch.randn(2, 32, rows, columns))
    assert [tuple(level.shape) for level in maps] == [(2, 16, *shape) for shape in level_shapes(rows, columns, STRIDES)]


def test_the_paper_frame_has_196416_positions() -> None:
    assert sum(rows * columns for rows, columns in level_shapes(72, 128, STRIDES)) == 196_416


def enlarged_then_convolved(layer: UpsampledConv, maps: Tensor) -> Tensor:
    enlarged = functional.interpolate(maps, scale_factor=2, mode="nearest")
    return functional.conv2d(enlarged, layer.weight, padding=1)


@pytest.mark.parametrize(("rows", "columns"), [(8, 12), (7, 5), (1, 1), (1, 4)])
def test_an_enlarged_map_is_convolved_as_the_plain_way_does(rows: int, columns: int) -> None:
    torch.manual_seed(rows)
    layer = UpsampledConv(6, 4, 3, bias=False).double()
    maps = torch.randn(2, 6, rows, columns, dtype=torch.float64, requires_grad=True)
    factors = torch.randn(2, 4, 2 * rows, 2 * columns, dtype=torch.float64)
    found = []
    for way in (layer.forward, lambda given: enlarged_then_convolved(layer, given)):
        out = way(maps)
        gradients = torch.autograd.grad((out * factors).sum(), [maps, layer.weight])
        found.append([out, *gradients])
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, atol=1e-12)
