"""Anchors and their assignment, region proposals, and RoIAlign against a loop over bins and sample points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.detect.small_models import SMALL
from vgtok.detect.roi import BACKGROUND, UNDECIDED, RPNHead, assign_by_overlap, level_anchors, roi_align, sample
from vgtok.overlap import paired_iou


def random_boxes(count: int, seed: int, largest: float = 40.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 60
    return torch.cat([corner, corner + torch.rand(count, 2, generator=generator) * largest + 2], dim=1)


def test_anchors_stand_on_the_first_corner_of_their_cell() -> None:
    (level,) = level_anchors([(2, 3)], (8,), (4.0, 8.0), (0.5, 1.0), torch.zeros(()))
    anchors = torch.unflatten(level, 0, (2, 3, 2, 2))
    middle = (anchors[..., :2] + anchors[..., 2:]) / 2
    torch.testing.assert_close(middle[1, 2], torch.tensor([16.0, 8.0]).expand(2, 2, 2))
    sides = anchors[..., 2:] - anchors[..., :2]
    torch.testing.assert_close(sides.prod(dim=-1)[0, 0], torch.tensor([[32.0**2, 64.0**2]] * 2))
    torch.testing.assert_close((sides[..., 1] / sides[..., 0])[0, 0], torch.tensor([[0.5, 0.5], [1.0, 1.0]]))


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 1000), st.booleans())
@settings(deadline=None)
def test_overlap_assignment_by_loops(count: int, objects: int, seed: int, keep_best: bool) -> None:
    boxes, truth = random_boxes(count, seed), random_boxes(objects, seed + 1)
    owner = assign_by_overlap(boxes, truth, 0.5, 0.3, keep_best=keep_best)
    overlap = paired_iou(boxes[:, None], truth[None])[0]
    for number in range(count):
        best = float(overlap[number].max()) if objects else 0.0
        expected = int(overlap[number].argmax()) if best >= 0.5 else UNDECIDED if best >= 0.3 else BACKGROUND
        for index in range(objects if keep_best else 0):
            if overlap[number, index] == overlap[:, index].max() and overlap[number, index] >= 0.3:
                expected = index
        assert int(owner[number]) == expected


def test_sampling_keeps_its_share() -> None:
    owner = torch.tensor([0] * 40 + [BACKGROUND] * 100 + [UNDECIDED] * 50)
    positives, negatives = sample(owner, 64, 0.25)
    assert (len(positives), len(negatives)) == (16, 48)
    assert (owner[positives] >= 0).all()
    assert (owner[negatives] == BACKGROUND).all()
    positives, negatives = sample(owner[:30], 64, 0.25)
    assert (len(positives), len(negatives)) == (16, 0)


def test_a_proposal_without_area_is_dropped() -> None:
    head = RPNHead(SMALL)
    anchors = [torch.tensor([[10.0, 10, 30, 30], [-60.0, 5, -20, 40], [70.0, 70, 90, 90], [40.0, 40, 50, 60]])]
    still = [torch.zeros(4, 4)]
    # Best of all is one that lies beyond the left border and is cut to nothing there.
    found = head._proposals([torch.tensor([1.0, 5.0, 4.0, 2.0])], still, anchors, (64, 64))
    assert found.tolist() == [[40.0, 40, 50, 60], [10.0, 10, 30, 30]]
    nothing = head._proposals([torch.ones(1)], [torch.zeros(1, 4)], [torch.tensor([[-9.0, 0, -1, 9]])], (64, 64))
    assert nothing.shape == (0, 4)


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
