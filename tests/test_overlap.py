"""Overlaps, NMS and soft-NMS against plain loops over pairs of boxes, on tensors and on arrays."""

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.detect.test_boxes import boxes as integer_boxes
from vgtok.overlap import intersections, iou, iou_xywh, nms, paired_iou, soft_nms

ONE_CLASS = torch.zeros(200, dtype=torch.long)


def random_boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 60
    return torch.cat([corner, corner + torch.rand(count, 2, generator=generator) * 40], dim=1)


def pair_iou(a: list[float], b: list[float]) -> float:
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    return wide * high / union if union else 0.0


def greedy(boxes: Tensor, scores: Tensor, threshold: float) -> list[int]:
    kept: list[int] = []
    for candidate in sorted(range(len(boxes)), key=lambda i: -float(scores[i])):
        if all(pair_iou(boxes[candidate].tolist(), boxes[better].tolist()) <= threshold for better in kept):
            kept.append(candidate)
    return kept


def softened(boxes: Tensor, scores: Tensor, threshold: float, least: float) -> tuple[list[int], list[float]]:
    left = {i: float(score) for i, score in enumerate(scores)}
    kept, values = [], []
    while left:
        best = max(left, key=lambda i: left[i])
        kept.append(best)
        values.append(left.pop(best))
        for i in list(left):
            overlap = pair_iou(boxes[best].tolist(), boxes[i].tolist())
            left[i] *= 1 - overlap if overlap >= threshold else 1.0
            if left[i] < least:
                del left[i]
    return kept, values


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_nms_is_the_greedy_loop(seed: int, threshold: float) -> None:
    boxes, scores = random_boxes(90, seed), torch.rand(90, generator=torch.Generator().manual_seed(seed))
    assert nms(boxes, scores, ONE_CLASS[:90], threshold).tolist() == greedy(boxes, scores, threshold)


@pytest.mark.parametrize("seed", range(4))
def test_classes_do_not_suppress_each_other_with_torch_or_without(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes, scores = random_boxes(120, seed), torch.rand(120, generator=generator)
    labels = torch.randint(3, (120,), generator=generator)
    scores[60:] = scores[:60]
    members = [(labels == label).nonzero().flatten() for label in range(3)]
    each = [member[greedy(boxes[member], scores[member], 0.4)] for member in members]
    expected = sorted(torch.cat(each).tolist(), key=lambda i: (-float(scores[i]), i))
    assert nms(boxes, scores, labels, 0.4).tolist() == expected
    assert nms(boxes.numpy(), scores.numpy(), labels.numpy(), 0.4).tolist() == expected


def test_nms_over_several_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, scores = random_boxes(200, 9), torch.rand(200, generator=torch.Generator().manual_seed(9))
    whole = nms(boxes, scores, ONE_CLASS, 0.4)
    monkeypatch.setattr("vgtok.overlap._BLOCK", 16)
    assert torch.equal(nms(boxes, scores, ONE_CLASS, 0.4), whole)


@pytest.mark.parametrize("most", [0, 1, 7, 40, 400])
def test_nms_that_ends_early_gives_the_first_of_all(most: int) -> None:
    generator = torch.Generator().manual_seed(5)
    boxes, scores = random_boxes(300, 5), torch.rand(300, generator=generator)
    labels = torch.randint(2, (300,), generator=generator)
    everything = nms(boxes, scores, labels, 0.2)
    assert 40 < len(everything) < 300
    assert nms(boxes, scores, labels, 0.2, most).tolist() == everything[:most].tolist()


def test_ties_go_to_the_earlier_box_and_nothing_gives_nothing() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [30, 30, 30, 30]])
    assert nms(boxes, torch.ones(3), ONE_CLASS[:3], 0.5).tolist() == [0, 2]
    assert nms(torch.zeros(0, 4), torch.zeros(0), ONE_CLASS[:0], 0.5).shape == (0,)
    assert soft_nms(torch.zeros(0, 4), torch.zeros(0), ONE_CLASS[:0], 0.5, 0.0)[0].shape == (0,)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.3, 0.8])
def test_soft_nms_is_the_loop(seed: int, threshold: float) -> None:
    boxes, scores = random_boxes(60, seed), torch.rand(60, generator=torch.Generator().manual_seed(seed))
    kept, values = soft_nms(boxes, scores, ONE_CLASS[:60], threshold, 0.05)
    expected, expected_values = softened(boxes, scores, threshold, 0.05)
    assert kept.tolist() == expected
    torch.testing.assert_close(values, torch.tensor(expected_values))


def test_the_best_box_stays_however_low_its_score() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [40, 40, 50, 50], [0, 0, 10, 9]])
    kept, values = soft_nms(boxes, torch.tensor([2e-4, 5e-4, 1e-4]), ONE_CLASS[:3], 0.8, 1e-3)
    assert kept.tolist() == [1]
    assert values.tolist() == pytest.approx([5e-4])


def test_a_box_equal_to_one_that_is_gone_does_not_end_the_rest() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30], [50, 50, 60, 60]])
    kept, _ = soft_nms(boxes, torch.tensor([0.9, 0.5, 1e-4, 0.4]), ONE_CLASS[:4], 0.8, 1e-3)
    assert kept.tolist() == [0, 1, 3]


def test_classes_do_not_soften_each_other() -> None:
    boxes, scores = random_boxes(60, 1), torch.rand(60, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(60) % 3
    kept, values = soft_nms(boxes, scores, labels, 0.3, 0.05)
    assert values.tolist() == sorted(values.tolist(), reverse=True)
    for label in range(3):
        member = (labels == label).nonzero().flatten()
        alone, alone_values = softened(boxes[member], scores[member], 0.3, 0.05)
        assert kept[labels[kept] == label].tolist() == member[alone].tolist()
        torch.testing.assert_close(values[labels[kept] == label], torch.tensor(alone_values))


def test_overlaps_are_those_of_each_pair() -> None:
    first, second = random_boxes(12, 2), random_boxes(7, 3)
    expected = [[pair_iou(a, b) for b in second.tolist()] for a in first.tolist()]
    torch.testing.assert_close(iou(first, second), torch.tensor(expected))


def test_arrays_and_tensors_agree_bit_for_bit() -> None:
    first, second = random_boxes(60, 4), random_boxes(60, 5)
    scores, labels = torch.rand(60, generator=torch.Generator().manual_seed(4)), torch.arange(60) % 3
    for function in (intersections, iou, paired_iou):
        expected, found = function(first, second), function(first.numpy(), second.numpy())
        for tensor, array in zip(expected, found, strict=True):
            assert isinstance(array, np.ndarray)
            assert np.array_equal(tensor.numpy(), array)
    kept, values = soft_nms(first, scores, labels, 0.3, 0.05)
    kept_arrays = soft_nms(first.numpy(), scores.numpy(), labels.numpy(), 0.3, 0.05)
    assert np.array_equal(kept.numpy(), kept_arrays[0])
    assert np.array_equal(values.numpy(), kept_arrays[1])


def test_boxes_by_width_and_height_overlap_as_their_corners_do() -> None:
    boxes = random_boxes(20, 6).double().numpy()
    sized = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    np.testing.assert_allclose(iou_xywh(sized, sized[:9]), iou(boxes, boxes[:9]), atol=1e-12)


@given(integer_boxes(), integer_boxes())
def test_overlap_counts_cells(a: list[int], b: list[int]) -> None:
    cells = [{(x, y) for x in range(c[0], c[2]) for y in range(c[1], c[3])} for c in (a, b)]
    shared, union = len(cells[0] & cells[1]), len(cells[0] | cells[1])
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    overlap, giou = paired_iou(torch.tensor(a).float(), torch.tensor(b).float())
    torch.testing.assert_close(overlap, torch.tensor(shared / union))
    torch.testing.assert_close(giou, torch.tensor(shared / union - (hull - union) / hull))


def test_empty_boxes_overlap_without_nan() -> None:
    point = torch.tensor([5.0, 5.0, 5.0, 5.0], requires_grad=True)
    overlap, giou = paired_iou(point, torch.tensor([5.0, 5.0, 5.0, 5.0]))
    (gradient,) = torch.autograd.grad(overlap + giou, point)
    assert gradient.isfinite().all()
