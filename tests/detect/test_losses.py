"""Matching costs and losses by hand, and the cheapest assignment of all."""

import itertools
import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from vgtok.detect.losses import (
    PADDING,
    Assigned,
    SetPrediction,
    Targets,
    assign_least_cost,
    focal,
    match,
    matching_costs,
    quality_focal,
    query_losses,
)

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


def test_quality_focal_by_hand() -> None:
    logits, labels, quality = torch.tensor([[0.3, -1.0], [2.0, 0.1]]), torch.tensor([1, 2]), torch.tensor([0.7, 0.0])
    loss = quality_focal(logits, labels, quality)
    for row in range(2):
        for column in range(2):
            p = 1 / (1 + math.exp(-float(logits[row, column])))
            goal = float(quality[row]) if int(labels[row]) == column else 0.0
            cross = -goal * math.log(p) - (1 - goal) * math.log(1 - p)
            assert math.isclose(float(loss[row, column]), cross * abs(goal - p) ** 2, rel_tol=1e-5)


def test_focal_by_hand() -> None:
    logits, labels = torch.tensor([[0.3, -1.0], [2.0, 0.1]]), torch.tensor([1, 2])
    loss = focal(logits, labels)
    for row in range(2):
        for column in range(2):
            p = 1 / (1 + math.exp(-float(logits[row, column])))
            hit = int(labels[row]) == column
            expected = -0.25 * (1 - p) ** 2 * math.log(p) if hit else -0.75 * p**2 * math.log(1 - p)
            assert math.isclose(float(loss[row, column]), expected, rel_tol=1e-5)


def test_perfect_predictions_cost_nothing() -> None:
    target = Targets(torch.tensor([[10.0, 12, 30, 40], [50.0, 5, 52, 7]]), torch.tensor([1, 0]))
    scale = torch.tensor([96.0, 64, 96, 64])
    corners = target.boxes / scale
    shares = torch.cat([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], dim=1)
    boxes = torch.cat([torch.full((1, 4), 0.5), shares.flip(0)])[None]
    logits = torch.full((1, 3, 2), -20.0)
    logits[0, 1, 0] = logits[0, 2, 1] = 20.0
    prediction = SetPrediction(logits, boxes)
    assigned = match(prediction, [target], [SIZE])
    assert assigned.labels.tolist() == [[2, 0, 1]]
    losses = query_losses(prediction, assigned, [SIZE])
    assert all(float(loss) < 1e-4 for loss in losses.values())


def test_padding_is_seen_by_no_loss_and_objects_are_counted_once() -> None:
    torch.manual_seed(0)
    prediction = SetPrediction(torch.randn(1, 4, 3), torch.rand(1, 4, 4))
    boxes = torch.rand(1, 4, 4) * 20
    boxes[..., 2:] += boxes[..., :2] + 1
    some = query_losses(prediction, Assigned(torch.tensor([[0, 3, PADDING, PADDING]]), boxes), [SIZE])
    cut = SetPrediction(prediction.logits[:, :2], prediction.boxes[:, :2])
    same = query_losses(cut, Assigned(torch.tensor([[0, 3]]), boxes[:, :2]), [SIZE])
    assert some.keys() == same.keys()
    assert all(torch.equal(some[name], same[name]) for name in some)


def test_no_objects_give_finite_losses_and_gradients() -> None:
    logits, boxes = torch.randn(2, 5, 3, requires_grad=True), torch.rand(2, 5, 4, requires_grad=True)
    nothing = Targets(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    prediction = SetPrediction(logits, boxes)
    losses = query_losses(prediction, match(prediction, [nothing, nothing], [SIZE] * 2), [SIZE] * 2)
    assert float(losses["l1"].detach()) == float(losses["giou"].detach()) == 0
    gradients = torch.autograd.grad(torch.stack(list(losses.values())).sum(), (logits, boxes))
    assert all(gradient.isfinite().all() for gradient in gradients)
