"""Which prediction answers for which object: the assignment of least total cost, by SciPy's solver."""

from collections.abc import Mapping

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vgtok.detect.boxes import paired_iou, to_centres, to_corners

COSTS: Mapping[str, float] = {"class": 2.0, "l1": 5.0, "giou": 2.0}
"""Weights of the three costs."""


def matching_costs(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, size: tuple[int, int]) -> Tensor:
    """(Q, N) cost of each of Q predictions for each of N objects.

    `logits` (Q, classes), `boxes` (Q, 4) centre and size as shares of `size` (height, width), `labels` (N,), `targets`
    (N, 4) corners in pixels.
    """
    scale = boxes.new_tensor([size[1], size[0], size[1], size[0]])
    chance = logits.sigmoid()
    # The focal loss a prediction would have as this class, less the one it would have as background.
    as_object = -0.25 * (1 - chance) ** 2 * (chance + 1e-12).log()
    as_background = -0.75 * chance**2 * (1 - chance + 1e-12).log()
    by_class = (as_object - as_background)[:, labels]
    by_distance = torch.cdist(boxes, to_centres(targets / scale), p=1)
    by_overlap = -paired_iou((to_corners(boxes) * scale)[:, None], targets[None])[1]
    return COSTS["class"] * by_class + COSTS["l1"] * by_distance + COSTS["giou"] * by_overlap


def assign_least_cost(costs: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns (K,) of the one-to-one assignment of least total cost; K is the smaller side of (Q, N)."""
    # A broken prediction must not stop training: it is merely the last choice.
    finite = torch.nan_to_num(costs.detach().float(), nan=1e4, posinf=1e4, neginf=-1e4)
    rows, columns = linear_sum_assignment(finite.cpu().numpy())
    return torch.as_tensor(rows, device=costs.device), torch.as_tensor(columns, device=costs.device)
