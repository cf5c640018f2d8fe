"""Boxes in every form and back."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from vgtok.detect.boxes import clip, decode, encode, inverse_sigmoid, to_centers, to_corners

COORDINATES = st.integers(0, 30)


@st.composite
def boxes(draw: st.DrawFn) -> list[int]:
    x, y, width, height = draw(COORDINATES), draw(COORDINATES), draw(st.integers(1, 20)), draw(st.integers(1, 20))
    return [x, y, x + width, y + height]


@given(boxes(), boxes())
def test_forms_go_there_and_back(a: list[int], b: list[int]) -> None:
    anchor, box = torch.tensor(a).float(), torch.tensor(b).float()
    torch.testing.assert_close(to_corners(to_centers(box)), box)
    torch.testing.assert_close(decode(anchor, encode(anchor, box), (1.0, 1.0, 1.0, 1.0)), box, atol=1e-3, rtol=1e-4)


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
