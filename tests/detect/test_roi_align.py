"""RoIAlign against a loop over bins, sample points and the four cells around each."""

import math

import pytest
import torch
from torch import Tensor

from vgtok.detect.roi import roi_align


def read(plane: Tensor, y: float, x: float) -> Tensor:
    """Bilinear read of a (C, H, W) map; the edge repeats for one cell, beyond it there is nothing."""
    height, width = plane.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(plane), dtype=plane.dtype)
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = y - top, x - left
    upper = plane[:, top, left] * (1 - across) + plane[:, top, right] * across
    lower = plane[:, bottom, left] * (1 - across) + plane[:, bottom, right] * across
    return upper * (1 - down) + lower * down


def by_hand(features: Tensor, rois: Tensor, size: tuple[int, int], scale: float, sampling: int | None) -> Tensor:
    out = torch.zeros(len(rois), features.shape[1], *size, dtype=features.dtype)
    for number, (image, x0, y0, x1, y1) in enumerate(rois.tolist()):
        left, top = x0 * scale - 0.5, y0 * scale - 0.5
        bin_wide, bin_high = (x1 - x0) * scale / size[1], (y1 - y0) * scale / size[0]
        down = sampling or max(1, math.ceil(bin_high))
        across = sampling or max(1, math.ceil(bin_wide))
        for row in range(size[0]):
            for column in range(size[1]):
                for i in range(down):
                    for j in range(across):
                        y = top + (row + (i + 0.5) / down) * bin_high
                        x = left + (column + (j + 0.5) / across) * bin_wide
                        out[number, :, row, column] += read(features[int(image)], y, x) / (down * across)
    return out


def scene() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(2, 3, 14, 19, generator=generator)
    corner = torch.rand(12, 2, generator=generator) * 130 - 10
    side = torch.rand(12, 2, generator=generator) ** 3 * 160
    image = torch.randint(0, 2, (12, 1), generator=generator)
    return features, torch.cat([image, corner, corner + side], dim=1)


@pytest.mark.parametrize("sampling", [None, 1, 2])
def test_every_bin_is_the_mean_of_its_points(sampling: int | None) -> None:
    features, rois = scene()
    out = roi_align(features, rois, (7, 5), 1 / 8, sampling)
    torch.testing.assert_close(out, by_hand(features, rois, (7, 5), 1 / 8, sampling), rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_features() -> None:
    features, rois = scene()
    leaf, same = features.clone().requires_grad_(), features.clone().requires_grad_()
    weight = torch.randn(12, 3, 7, 7, generator=torch.Generator().manual_seed(6))
    (roi_align(leaf, rois, (7, 7), 1 / 8) * weight).sum().backward()
    (by_hand(same, rois, (7, 7), 1 / 8, None) * weight).sum().backward()
    assert leaf.grad is not None
    assert same.grad is not None
    torch.testing.assert_close(leaf.grad, same.grad, rtol=1e-4, atol=1e-5)


def test_no_region_gives_no_grid_and_still_a_gradient() -> None:
    features = torch.randn(1, 3, 4, 4, requires_grad=True)
    out = roi_align(features, torch.zeros(0, 5), (7, 7), 1 / 4)
    assert out.shape == (0, 3, 7, 7)
    out.sum().backward()
    assert features.grad is not None
    assert not features.grad.any()
