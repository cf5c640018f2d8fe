"""Match queries to objects, compute the losses of a match, and group the queries of a decoder pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from vgtok.detect.boxes import to_centers, to_corners
from vgtok.overlap import paired_iou

COSTS: Mapping[str, float] = {"class": 2.0, "l1": 5.0, "giou": 2.0}
"""Weights of the three matching costs."""


def matching_costs(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the (Q, N) cost of assigning each of Q predictions to each of N objects.

    `logits` (Q, classes), `boxes` (Q, 4) center and size as shares of `size` (height, width), `labels` (N,), `targets`
    (N, 4) corners in pixels.
    """
    scale = boxes.new_tensor([size[1], size[0], size[1], size[0]])
    chance = logits.sigmoid()
    # The focal loss of a prediction as this class, minus its focal loss as background.
    as_object = -0.25 * (1 - chance) ** 2 * (chance + 1e-12).log()
    as_background = -0.75 * chance**2 * (1 - chance + 1e-12).log()
    by_class = (as_object - as_background)[:, labels]
    by_distance = torch.cdist(boxes, to_centers(targets / scale), p=1)
    by_overlap = -paired_iou((to_corners(boxes) * scale)[:, None], targets[None])[1]
    return COSTS["class"] * by_class + COSTS["l1"] * by_distance + COSTS["giou"] * by_overlap


def assign_least_cost(costs: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns (K,) of the one-to-one assignment of least total cost; K is the smaller of Q and N."""
    # A prediction that is not finite must not stop training; it is the last choice.
    finite = torch.nan_to_num(costs.detach().float(), nan=1e4, posinf=1e4, neginf=-1e4)
    rows, columns = linear_sum_assignment(finite.cpu().numpy())
    return torch.as_tensor(rows, device=costs.device), torch.as_tensor(columns, device=costs.device)


QUERY_WEIGHTS: Mapping[str, float] = {"class": 1.0, "l1": 5.0, "giou": 2.0}
"""Weights of a query's three losses."""

PRIOR = -4.595
"""Logit of 1%, the initial bias of classifiers: nearly everything is background."""

PADDING = -1
"""Label of a query that only pads a batch; losses skip it."""


Sizes = Sequence[tuple[int, int]]
"""(height, width) in pixels of the canvas each image of a batch is, or is a crop of."""


@dataclass(frozen=True)
class SetPrediction:
    """Predictions for all queries: `logits` (B, Q, classes), `boxes` (B, Q, 4) center and size as shares."""

    logits: Tensor
    boxes: Tensor


@dataclass(frozen=True)
class Targets:
    """The objects of one image: `boxes` (N, 4) corners in canvas pixels, `labels` (N,)."""

    boxes: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Assigned:
    """Targets of all queries: `labels` (B, Q), `boxes` (B, Q, 4) corners in pixels.

    A label equal to the number of classes is background, `PADDING` is no query; their boxes are not read.
    """

    labels: Tensor
    boxes: Tensor


def pixels_per_share(sizes: Sizes, like: Tensor) -> Tensor:
    """Return the (B, 1, 4) factors from shares x, y, x, y of B canvases of (height, width) to pixels, as `like`."""
    return like.new_tensor([[width, height, width, height] for height, width in sizes])[:, None]


def match(prediction: SetPrediction, targets: Sequence[Targets], sizes: Sizes) -> Assigned:
    """Assign each image's objects to the queries of least total cost; the other queries are background."""
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
    """Return the weighted losses `class`, `l1` and `giou`, each divided by the number of assigned objects."""
    real = assigned.labels != PADDING
    logits, shares = prediction.logits[real].float(), prediction.boxes[real].float()
    labels, goals = assigned.labels[real], assigned.boxes[real]
    objects = labels < logits.shape[1]
    count = objects.sum().clamp(min=1)
    scale = pixels_per_share(sizes, shares).expand_as(prediction.boxes)[real][objects]
    iou, giou = paired_iou(to_corners(shares[objects]) * scale, goals[objects])
    quality = torch.zeros_like(labels, dtype=logits.dtype)
    quality[objects] = iou.detach()
    distance = (shares[objects] - to_centers(goals[objects] / scale)).abs().sum()
    sums = {"class": quality_focal(logits, labels, quality).sum(), "l1": distance, "giou": (1 - giou).sum()}
    return {name: QUERY_WEIGHTS[name] * total / count for name, total in sums.items()}


def quality_focal(logits: Tensor, labels: Tensor, quality: Tensor) -> Tensor:
    """Return the (N, classes) loss whose target is the (N,) quality in the column of the label and zero elsewhere.

    `labels` (N,) hold the number of classes for background.
    """
    classes = logits.shape[1]
    goal = functional.one_hot(labels, classes + 1)[:, :classes] * quality[:, None]
    distance = (goal - logits.sigmoid()).abs()
    return functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * distance**2


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the (N, classes) focal loss, alpha 0.25, gamma 2; label (N,) of background: the number of classes."""
    classes = logits.shape[1]
    goal = functional.one_hot(labels, classes + 1)[:, :classes].to(logits.dtype)
    chance = logits.sigmoid()
    wrong = torch.where(goal > 0, 1 - chance, chance)
    alpha = torch.where(goal > 0, 0.25, 0.75)
    return functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * alpha * wrong**2


@dataclass(frozen=True)
class QueryPart:
    """Queries of one source: `content` (B, n, D), `boxes` (B, n, 4) as shares, `group` (n,) numbers from zero.

    `assigned` are their targets. No query attends to those marked as padding.
    """

    content: Tensor
    boxes: Tensor
    group: Tensor
    sees_proposals: bool
    assigned: Assigned


@dataclass(frozen=True)
class QueryGroups:
    """The queries of a batch beside the proposals, by the name of their source."""

    parts: Mapping[str, QueryPart]

    @property
    def content(self) -> Tensor:
        """Content of all groups, (B, G, D)."""
        return torch.cat([part.content for part in self.parts.values()], dim=1)

    @property
    def boxes(self) -> Tensor:
        """Boxes of all groups, (B, G, 4)."""
        return torch.cat([part.boxes for part in self.parts.values()], dim=1)

    def hidden(self, proposals: int) -> Tensor:
        """Return (B, Q, Q), true where the row's query must not attend to the column's; proposals come first."""
        first = next(iter(self.parts.values()))
        numbers = [torch.zeros(proposals, dtype=torch.long, device=first.group.device)]
        looks = [torch.zeros(proposals, dtype=torch.bool, device=first.group.device)]
        real = [torch.ones(len(first.boxes), proposals, dtype=torch.bool, device=first.group.device)]
        taken = 1
        for part in self.parts.values():
            numbers.append(part.group + taken)
            looks.append(torch.full_like(part.group, part.sees_proposals, dtype=torch.bool))
            real.append(part.assigned.labels != PADDING)
            taken = int(numbers[-1].max()) + 1
        number, look = torch.cat(numbers), torch.cat(looks)
        # (Q, Q) by groups, then (B, Q, Q) without padding; every query attends to itself, so no row is empty
        visible = (number[:, None] == number[None]) | (look[:, None] & (number[None] == 0))
        visible = visible & torch.cat(real, dim=1)[:, None]
        return ~(visible | torch.eye(len(number), dtype=torch.bool, device=number.device))

    def split(self, prediction: SetPrediction) -> tuple[SetPrediction, dict[str, SetPrediction]]:
        """Split a prediction for all (B, Q) queries into that of the proposals and those of the groups by name."""
        lengths = [part.boxes.shape[1] for part in self.parts.values()]
        lengths = [prediction.boxes.shape[1] - sum(lengths), *lengths]
        pieces = [
            SetPrediction(logits, boxes)
            for logits, boxes in zip(
                *(torch.split(part, lengths, dim=1) for part in (prediction.logits, prediction.boxes)), strict=True
            )
        ]
        return pieces[0], dict(zip(self.parts, pieces[1:], strict=True))
