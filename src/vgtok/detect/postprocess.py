"""The last layer's queries to detections: the best pairs of query and class, softly suppressed within each class."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vgtok.detect.boxes import clip, to_corners
from vgtok.detect.losses import SetPrediction
from vgtok.detect.suppression import soft_nms_by_class

Prediction = tuple[Tensor, Tensor, Tensor]
"""(N, 4) boxes x0 y0 x1 y1 in canvas pixels, (N,) scores, best first, and (N,) labels."""

_OVERLAP = 0.8
_LEAST_SCORE = 1e-3


def best_boxes(
    prediction: SetPrediction, size: tuple[int, int], clipped: Sequence[tuple[int, int]], candidates: int, most: int
) -> list[Prediction]:
    """(N, 4) corner boxes in pixels, (N,) scores and (N,) labels of every image, at most `most`, best first.

    Boxes are shares of `size` (height, width) and are cut to each image's own size in `clipped`; `candidates` pairs of
    query and class enter suppression.
    """
    scale = prediction.boxes.new_tensor([size[1], size[0], size[1], size[0]])
    results = []
    for logits, shares, frame in zip(prediction.logits, prediction.boxes, clipped, strict=True):
        scores = logits.float().sigmoid().flatten()
        best = scores.topk(min(candidates, len(scores)))
        query = torch.div(best.indices, logits.shape[1], rounding_mode="floor")
        labels = best.indices % logits.shape[1]
        boxes = clip((to_corners(shares[query]) * scale).float(), frame)
        kept, values = soft_nms_by_class(boxes, best.values, labels, _OVERLAP, _LEAST_SCORE)
        results.append((boxes[kept[:most]], values[:most], labels[kept[:most]]))
    return results
