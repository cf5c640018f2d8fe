"""Convert boxes between corners in pixels, center and size as a share of the image, and deltas to an anchor."""

import math

import torch
from torch import Tensor

Prediction = tuple[Tensor, Tensor, Tensor]
"""(N, 4) corner boxes in canvas pixels, (N,) scores, best first, and (N,) labels."""

_LARGEST_GROWTH = math.log(1000 / 16)
"""Logarithm of the largest ratio of a decoded side to its anchor's."""


def to_corners(boxes: Tensor) -> Tensor:
    """Convert (..., 4) center x, y, width, height to x0 y0 x1 y1."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([center - half, center + half], dim=-1)


def to_centers(boxes: Tensor) -> Tensor:
    """Convert (..., 4) x0 y0 x1 y1 to center x, y, width, height."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(first + last) / 2, last - first], dim=-1)


def inverse_sigmoid(shares: Tensor, eps: float = 1e-3) -> Tensor:
    """Return the logits of shares, of any shape; shares closer than `eps` to 0 or 1 count as `eps` away."""
    shares = shares.clamp(0, 1)
    return torch.log(shares.clamp(min=eps) / (1 - shares).clamp(min=eps))


def decode(anchors: Tensor, deltas: Tensor, stds: tuple[float, ...], size: tuple[int, int] | None = None) -> Tensor:
    """Apply (..., 4) deltas to (..., 4) corner anchors; return corner boxes, clipped to (height, width) if given."""
    center, sides = torch.split(to_centers(anchors), 2, dim=-1)
    moved, grown = torch.split(deltas * deltas.new_tensor(stds), 2, dim=-1)
    grown = grown.clamp(-_LARGEST_GROWTH, _LARGEST_GROWTH)
    boxes = to_corners(torch.cat([center + moved * sides, sides * grown.exp()], dim=-1))
    return boxes if size is None else clip(boxes, size)


def encode(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Return the (..., 4) deltas from corner anchors to corner boxes, with standard deviations of one."""
    (center, sides), (goal, goal_sides) = (torch.split(to_centers(side), 2, dim=-1) for side in (anchors, boxes))
    return torch.cat([(goal - center) / sides, (goal_sides.clamp(min=1e-3) / sides).log()], dim=-1)


def clip(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Clip (..., 4) corner boxes to an image of (height, width)."""
    height, width = size
    return torch.minimum(boxes.clamp(min=0), boxes.new_tensor([width, height, width, height]))
