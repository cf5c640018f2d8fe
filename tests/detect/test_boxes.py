"""Boxes in every form and back, and overlaps against a count of cells."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from vgtok.detect.boxes import clip, decode, encode, inverse_sigmoid, paired_iou, to_centres, to_corners

COORDINATES = st.integers(0, 30)


@st.composite
def boxes(draw: st.DrawFn) -> list[int]:
    x, y, width, height = draw(COORDINATES), draw(COORDINATES), draw(st.integers(1, 20)), draw(st.integers(1, 20))
    return [x, y, x + width, y + height]


@given(boxes(), boxes())
def test_overlap_counts_cells(a: list[int], b: list[int]) -> None:
    cells = [{(x, y) for x in range(c[0], c[2]) for y in range(c[1], c[3])} for c in (a, b)]
    shared, union = len(cells[0] & cells[1]), len(cells[0] | cells[1])
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    iou, giou = paired_iou(torch.tensor(a).float(), torch.tensor(b).float())
    torch.testing.assert_close(iou, torch.tensor(shared / union))
    torch.testing.assert_close(giou, torch.tensor(shared / union - (hull - union) / hull))


@given(boxes(), boxes())
def test_forms_go_there_and_back(a: list[int], b: list[int]) -> None:
    anchor, box = torch.tensor(a).float(), torch.tensor(b).float()
    torch.testing.assert_close(to_corners(to_centres(box)), box)
    torch.testing.assert_close(decode(anchor, encode(anchor, box), (1.0, 1.0, 1.0, 1.0)), box, atol=1e-3, rtol=1e-4)


def test_empty_boxes_overlap_without_nan() -> None:
    point = torch.tensor([5.0, 5.0, 5.0, 5.0], requires_grad=True)
    iou, giou = paired_iou(point, torch.tensor([5.0, 5.0, 5.0, 5.0]))
    (gradient,) = torch.autograd.grad(iou + giou, point)
    assert gradient.isfinite().all()


def test_decoding_grows_at_most_so_far_and_stays_inside() -> None:
    anchor, huge = torch.tensor([[10.0, 10, 26, 26]]), torch.full((1, 4), 100.0)
    assert decode(anchor, huge, (1.0, 1.0, 1.0, 1.0)).isfinite().all()
    inside = decode(anchor, huge, (1.0, 1.0, 1.0, 1.0), (40, 60))
    torch.testing.assert_close(inside, clip(inside, (40, 60)))


def test_inverse_sigmoid_is_finite_at_the_border() -> None:
    shares = torch.tensor([-0.5, 0.0, 1e-4, 0.3, 1.0, 2.0])
    logits = inverse_sigmoid(shares)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[3].sigmoid(), shares[3])
    torch.testing.assert_close(logits[0].sigmoid(), torch.tensor(1e-3), atol=1e-5, rtol=0)
