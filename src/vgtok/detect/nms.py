"""From scored boxes to predictions: the best pairs of box and class, thinned out by NMS or soft-NMS."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vgtok.detect.boxes import clip, to_corners
from vgtok.detect.losses import SetPrediction
from vgtok.detect.numpy_nms import LEAST_SCORE, OVERLAP, soften

_BLOCK = 128
"""Boxes settled at a time: a block by all later boxes is what NMS holds in memory, small enough for a cache."""


def nms(boxes: Tensor, scores: Tensor, labels: Tensor, iou_threshold: float) -> Tensor:
    """Indices (K,) of boxes (N, 4) that no better kept one of their label (N,) overlaps by more than the threshold.

    The kept come by falling score; among equal scores the earlier box wins.
    """
    order = scores.argsort(descending=True, stable=True)
    boxes, labels = boxes.detach()[order].float(), labels[order]
    alive = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    for start in range(0, len(boxes), _BLOCK):
        stop = min(start + _BLOCK, len(boxes))
        over = overlaps(boxes[start:stop], boxes[start:]) > iou_threshold
        over &= labels[start:stop, None] == labels[start:]
        kept = _settled(over[:, : stop - start], alive[start:stop])
        alive[start:stop] = kept
        alive[stop:] &= ~over[kept, stop - start :].any(dim=0)
    return order[alive]


def soft_nms(boxes: Tensor, scores: Tensor, iou_threshold: float, min_score: float) -> tuple[Tensor, Tensor]:
    """Lower the score of boxes (N, 4) that overlap a better one, by one minus the overlap: (K,) indices, (K,) scores.

    A box loses score to every better one it overlaps by the threshold or more, and is gone below `min_score`, but for
    the very best one. The kept come by falling new score.
    """
    return _softened(overlaps(boxes, boxes), scores, iou_threshold, min_score)


def soft_nms_by_class(
    boxes: Tensor, scores: Tensor, labels: Tensor, iou_threshold: float, min_score: float
) -> tuple[Tensor, Tensor]:
    """`soft_nms` where only boxes of the same label (N,) overlap: (K,) indices and scores, all classes by score."""
    overlap = overlaps(boxes, boxes) * (labels[:, None] == labels[None, :])
    return _softened(overlap, scores, iou_threshold, min_score)


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of (N, 4) with (M, 4) boxes: (N, M); boxes without area overlap nothing."""
    # (N, 1) and (1, M) coordinates: each side of the intersections is then one (N, M) plane.
    x0, y0, x1, y1 = first.detach().float().T[..., None]
    u0, v0, u1, v1 = second.detach().float().T[:, None]
    wide = (torch.minimum(x1, u1) - torch.maximum(x0, u0)).clamp_(min=0)
    high = (torch.minimum(y1, v1) - torch.maximum(y0, v0)).clamp_(min=0)
    inside = wide.mul_(high)
    union = (x1 - x0) * (y1 - y0) + (u1 - u0) * (v1 - v0) - inside
    return torch.where(union > 0, inside / union, 0.0)


def _settled(over: Tensor, alive: Tensor) -> Tensor:
    """Which of (n,) boxes in falling order greedy NMS keeps, given the (n, n) overlaps above the threshold.

    A box stays unless a kept earlier one overlaps it. Each round settles at least one more box from the top, and the
    rule has one solution, so the first round that changes nothing has found it.
    """
    earlier = over.triu(diagonal=1)
    kept = alive
    while True:
        settled = alive & ~(earlier & kept[:, None]).any(dim=0)
        if torch.equal(settled, kept):
            return kept
        kept = settled


def _softened(overlap: Tensor, scores: Tensor, iou_threshold: float, min_score: float) -> tuple[Tensor, Tensor]:
    # One box after the other by nature: plain arrays on the host are quicker at it than any device.
    kept, values = soften(overlap.cpu().numpy(), scores.detach().float().cpu().numpy(), iou_threshold, min_score)
    return torch.from_numpy(kept).to(scores.device), torch.from_numpy(values).to(scores)


Prediction = tuple[Tensor, Tensor, Tensor]
"""(N, 4) boxes x0 y0 x1 y1 in canvas pixels, (N,) scores, best first, and (N,) labels."""


def best_boxes(
    prediction: SetPrediction, size: tuple[int, int], clipped: Sequence[tuple[int, int]], count: int, most: int
) -> list[Prediction]:
    """(N, 4) corner boxes in pixels, (N,) scores and (N,) labels of every image, at most `most`, best first.

    Boxes are shares of `size` (height, width) and are cut to each image's own size in `clipped`; `count` pairs of
    query and class enter suppression.
    """
    results = []
    for logits, shares, frame in zip(prediction.logits, prediction.boxes, clipped, strict=True):
        boxes, scores, labels = candidates(logits, shares, size, count)
        boxes = clip(boxes, frame)
        kept, values = soft_nms_by_class(boxes, scores, labels, OVERLAP, LEAST_SCORE)
        results.append((boxes[kept[:most]], values[:most], labels[kept[:most]]))
    return results


def candidates(logits: Tensor, shares: Tensor, size: tuple[int, int], count: int) -> Prediction:
    """The best `count` pairs of query and class, of (Q, classes) logits and (Q, 4) boxes as shares of `size`.

    Boxes are in pixels of that (height, width) and not yet cut to it.
    """
    scores = logits.float().sigmoid().flatten()
    best = scores.topk(min(count, len(scores)))
    query = torch.div(best.indices, logits.shape[1], rounding_mode="floor")
    scale = shares.new_tensor([size[1], size[0], size[1], size[0]])
    return (to_corners(shares[query]) * scale).float(), best.values, best.indices % logits.shape[1]
