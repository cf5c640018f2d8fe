"""Losses against their formulas, at perfect predictions, and with nothing to predict."""

import math

import torch

from vgtok.detect.losses import PADDING, Assigned, SetPrediction, Targets, focal, match, quality_focal, query_losses

SIZE = (64, 96)


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
