"""Anchors where they should stand, and both assigners against loops that follow their definition."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok.detect.atss import assign_by_statistics, centerness, enlarged
from vgtok.detect.roi import BACKGROUND, UNDECIDED, assign_by_overlap, level_anchors, sample
from vgtok.overlap import paired_iou


def _random_boxes(count: int, seed: int, largest: float = 40.0) -> torch.Tensor:
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
    boxes, truth = _random_boxes(count, seed), _random_boxes(objects, seed + 1)
    owner = assign_by_overlap(boxes, truth, 0.5, 0.3, keep_best=keep_best)
    overlap = paired_iou(boxes[:, None], truth[None])[0]
    for number in range(count):
        best = float(overlap[number].max()) if objects else 0.0
        expected = int(overlap[number].argmax()) if best >= 0.5 else UNDECIDED if best >= 0.3 else BACKGROUND
        for index in range(objects if keep_best else 0):
            if overlap[number, index] == overlap[:, index].max() and overlap[number, index] >= 0.3:
                expected = index
        assert int(owner[number]) == expected


@given(st.integers(0, 8), st.integers(0, 1000))
@settings(deadline=None)
def test_statistics_assignment_by_loops(objects: int, seed: int) -> None:
    levels = level_anchors([(12, 12), (6, 6), (3, 3)], (8, 16, 32), (4.0,), (1.0,), torch.zeros(()))
    truth = _random_boxes(objects, seed)
    owner = assign_by_statistics(levels, truth)
    anchors = torch.cat(levels)
    best = [(-1.0, BACKGROUND)] * len(anchors)
    for number in range(objects):
        centre = (truth[number, :2] + truth[number, 2:]) / 2
        candidates, first = [], 0
        for level in levels:
            distance = torch.linalg.vector_norm((level[:, :2] + level[:, 2:]) / 2 - centre, dim=1)
            candidates += [first + int(i) for i in distance.argsort(stable=True)[:9]]
            first += len(level)
        overlap = paired_iou(anchors[candidates], truth[number])[0]
        threshold = overlap.mean() + overlap.std()
        for anchor, amount in zip(candidates, overlap, strict=True):
            x, y = ((anchors[anchor, :2] + anchors[anchor, 2:]) / 2).tolist()
            x0, y0, x1, y1 = truth[number].tolist()
            inside = min(x - x0, y - y0, x1 - x, y1 - y) > 0.01
            if amount >= threshold and inside and float(amount) > best[anchor][0]:
                best[anchor] = (float(amount), number)
    # Anchors tied in distance may be taken in another order: then only their number can differ.
    agree = sum(int(owner[i]) == number for i, (_, number) in enumerate(best))
    assert agree >= len(anchors) - 2
    assert abs(int((owner >= 0).sum()) - sum(number >= 0 for _, number in best)) <= 1


def test_sampling_keeps_its_share() -> None:
    owner = torch.tensor([0] * 40 + [BACKGROUND] * 100 + [UNDECIDED] * 50)
    positives, negatives = sample(owner, 64, 0.25)
    assert (len(positives), len(negatives)) == (16, 48)
    assert (owner[positives] >= 0).all()
    assert (owner[negatives] == BACKGROUND).all()
    positives, negatives = sample(owner[:30], 64, 0.25)
    assert (len(positives), len(negatives)) == (16, 0)


def test_centerness_is_one_in_the_middle_and_zero_at_the_border() -> None:
    boxes = torch.tensor([[0.0, 0, 20, 10]]).expand(3, 4)
    anchors = torch.tensor([[5.0, 0, 15, 10], [-5.0, 0, 5, 10], [0.0, 0, 10, 10]])
    torch.testing.assert_close(centerness(anchors, boxes), torch.tensor([1.0, 0.0, (1 / 3) ** 0.5]))


@given(st.floats(0, 90), st.floats(0, 90), st.floats(0.5, 7.5), st.floats(0.5, 7.5))
@settings(deadline=None)
def test_an_object_between_the_centres_of_cells_finds_an_anchor(
    x: float, y: float, width: float, height: float
) -> None:
    levels = level_anchors([(16, 16), (8, 8), (4, 4), (2, 2)], (8, 16, 32, 64), (8.0,), (1.0,), torch.zeros(()))
    box = torch.tensor([[x, y, x + width, y + height]])
    owner = assign_by_statistics(levels, box, least=1.5 / 8)
    anchors = torch.cat(levels)[owner == 0]
    assert len(anchors)
    assert centerness(anchors, enlarged(box.expand(len(anchors), 4), anchors, 1.5 / 8)).max() > 0.19


def test_a_box_larger_than_its_cell_stays_as_it_is() -> None:
    boxes = torch.tensor([[0.0, 0.0, 9.0, 20.0], [4.0, 4.0, 6.0, 16.0]])
    anchors = torch.tensor([[-32.0, -32.0, 32.0, 32.0]]).expand(2, 4)
    assert enlarged(boxes, anchors, 0.0) is boxes
    grown = enlarged(boxes, anchors, 1 / 8)
    torch.testing.assert_close(grown[0], boxes[0])
    torch.testing.assert_close(grown[1], torch.tensor([1.0, 4.0, 9.0, 16.0]))
