"""The last layer's queries to detections: the best pairs of query and class, softly suppressed within each class."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vgtok.detect.boxes import clip, to_corners
from vgtok.detect.losses import SetPrediction
from vgtok.detect.suppression import soft_nms_by_class
from vgtok.detect.survivors import LEAST_SCORE, OVERLAP

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
