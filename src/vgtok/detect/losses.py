"""Losses of predictions with their targets: quality focal, L1 and generalised IoU for queries, focal for anchors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vgtok.detect.boxes import paired_iou, to_centres, to_corners
from vgtok.detect.matching import assign_least_cost, matching_costs

QUERY_WEIGHTS: Mapping[str, float] = {"class": 1.0, "l1": 5.0, "giou": 2.0}
"""Weights of a query's three losses."""

PRIOR = -4.595
"""The logit of 1%: at first nearly everything is background."""

PADDING = -1
"""The label of a query that only fills a batch: no loss sees it."""


Sizes = Sequence[tuple[int, int]]
"""(height, width) in pixels of the frame each image of a batch is, or is a part of."""


@dataclass(frozen=True)
class SetPrediction:
    """What one stage predicts for every query: `logits` (B, Q, classes), `boxes` (B, Q, 4) as shares, by centre."""

    logits: Tensor
    boxes: Tensor


@dataclass(frozen=True)
class Targets:
    """The objects of one image: `boxes` (N, 4) corners in canvas pixels, `labels` (N,)."""

    boxes: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Assigned:
    """What every query should predict: `labels` (B, Q), `boxes` (B, Q, 4) corners in pixels.

    The number of classes as a label is background, `PADDING` is no query at all; the box of neither is read.
    """

    labels: Tensor
    boxes: Tensor


def pixels_per_share(sizes: Sizes, like: Tensor) -> Tensor:
    """(B, 1, 4) what turns shares x, y, x, y of B frames of (height, width) px into pixels, as `like` (any shape)."""
    return like.new_tensor([[width, height, width, height] for height, width in sizes])[:, None]


def match(prediction: SetPrediction, targets: Sequence[Targets], sizes: Sizes) -> Assigned:
    """Give each of the B images' objects to the query that costs least; the other queries are background."""
    logits, boxes = prediction.logits.detach().float(), prediction.boxes.detach().float()
    labels = torch.full(logits.shape[:2], logits.shape[2], dtype=torch.long, device=logits.device)
    goals = torch.zeros_like(boxes)
    for image, (target, size) in enumerate(zip(targets, sizes, strict=True)):
        costs = matching_costs(logits[image], boxes[image], target.labels, target.boxes, size)
        rows, columns = assign_least_cost(costs)
        labels[image, rows] = target.labels[columns]
        goals[image, rows] = target.boxes[columns]
    return Assigned(labels, goals)


def query_losses(prediction: SetPrediction, assigned: Assigned, sizes: Sizes) -> dict[str, Tensor]:
    """Weighted `class`, `l1` and `giou` losses, each over the number of objects among the queries' targets."""
    real = assigned.labels != PADDING
    logits, shares = prediction.logits[real].float(), prediction.boxes[real].float()
    labels, goals = assigned.labels[real], assigned.boxes[real]
    objects = labels < logits.shape[1]
    count = objects.sum().clamp(min=1)
    scale = pixels_per_share(sizes, shares).expand_as(prediction.boxes)[real][objects]
    iou, giou = paired_iou(to_corners(shares[objects]) * scale, goals[objects])
    quality = torch.zeros_like(labels, dtype=logits.dtype)
    quality[objects] = iou.detach()
    distance = (shares[objects] - to_centres(goals[objects] / scale)).abs().sum()
    sums = {"class": quality_focal(logits, labels, quality).sum(), "l1": distance, "giou": (1 - giou).sum()}
    return {name: QUERY_WEIGHTS[name] * total / count for name, total in sums.items()}


def quality_focal(logits: Tensor, labels: Tensor, quality: Tensor) -> Tensor:
    """(N, classes) loss whose goal is the (N,) quality in the column of an object's label and zero elsewhere.

    `labels` (N,) hold the number of classes for background.
    """
    classes = logits.shape[1]
    goal = functional.one_hot(labels, classes + 1)[:, :classes] * quality[:, None]
    distance = (goal - logits.sigmoid()).abs()
    return functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * distance**2


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """(N, classes) focal loss, alpha 0.25 and gamma 2; `labels` (N,) hold the number of classes for background."""
    classes = logits.shape[1]
    goal = functional.one_hot(labels, classes + 1)[:, :classes].to(logits.dtype)
    chance = logits.sigmoid()
    wrong = torch.where(goal > 0, 1 - chance, chance)
    alpha = torch.where(goal > 0, 0.25, 0.75)
    return functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * alpha * wrong**2
