"""Costs against their formulas written out, and the assignment against SciPy and every permutation."""

import itertools
import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from vgtok.detect.losses import assign_least_cost, matching_costs

SIZE = (64, 96)


def _cost(logit: float, box: list[float], target: list[float]) -> float:
    """Focal 2, L1 5 and GIoU 2 of one prediction for one object, as printed."""
    p = 1 / (1 + math.exp(-logit))
    focal = -0.25 * (1 - p) ** 2 * math.log(p) + 0.75 * p**2 * math.log(1 - p)
    height, width = SIZE
    goal = [
        (target[0] + target[2]) / 2 / width,
        (target[1] + target[3]) / 2 / height,
        (target[2] - target[0]) / width,
        (target[3] - target[1]) / height,
    ]
    x, y, w, h = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    a = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    shared = max(0.0, min(a[2], target[2]) - max(a[0], target[0])) * max(
        0.0, min(a[3], target[3]) - max(a[1], target[1])
    )
    union = w * h + (target[2] - target[0]) * (target[3] - target[1]) - shared
    hull = (max(a[2], target[2]) - min(a[0], target[0])) * (max(a[3], target[3]) - min(a[1], target[1]))
    giou = shared / union - (hull - union) / hull
    return 2 * focal + 5 * sum(abs(u - v) for u, v in zip(box, goal, strict=True)) - 2 * giou


def test_costs_are_the_printed_ones() -> None:
    torch.manual_seed(0)
    logits, boxes = torch.randn(6, 3) * 2, torch.rand(6, 4) * 0.5 + 0.2
    labels, targets = torch.tensor([2, 0]), torch.tensor([[4.0, 8, 30, 20], [50.0, 2, 52, 4]])
    costs = matching_costs(logits, boxes, labels, targets, SIZE)
    for row, column in itertools.product(range(6), range(2)):
        label = int(labels[column])
        expected = _cost(float(logits[row, label]), boxes[row].tolist(), targets[column].tolist())
        assert math.isclose(float(costs[row, column]), expected, rel_tol=1e-3, abs_tol=1e-4)


@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 10_000))
def test_assignment_is_the_cheapest_of_all(queries: int, objects: int, seed: int) -> None:
    costs = torch.from_numpy(np.random.default_rng(seed).normal(size=(queries, objects)))
    rows, columns = assign_least_cost(costs)
    assert len(rows) == min(queries, objects) == len(set(rows.tolist())) == len(set(columns.tolist()))
    expected = linear_sum_assignment(costs.numpy())
    assert (rows.numpy() == expected[0]).all()
    assert (columns.numpy() == expected[1]).all()
    total = float(costs[rows, columns].sum())
    if queries >= objects:
        every = itertools.permutations(range(queries), objects)
        assert total <= min(sum(float(costs[r, c]) for c, r in enumerate(choice)) for choice in every) + 1e-6


def test_broken_predictions_are_the_last_choice() -> None:
    costs = torch.tensor([[float("nan")], [3.0], [float("inf")]])
    rows, _ = assign_least_cost(costs)
    assert rows.tolist() == [1]
