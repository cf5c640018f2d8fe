"""From the raw output of a host detector to scores, labels and boxes, best first, as its own post-processing does.

Boxes are (x, y) of the center, width and height as shares of the model's input.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Predictions(NamedTuple):
    """(K,) scores and labels and (K, 4) boxes of one image."""

    scores: Tensor
    labels: Tensor
    boxes: Tensor


def softmax_best(output: Any, most: int) -> list[Predictions]:
    """Take the likeliest class of every query; the last class is no object."""
    scores, labels = output.logits.softmax(dim=-1)[..., :-1].max(dim=-1)
    return _best(scores, labels, output.pred_boxes, most)


def sigmoid_best(output: Any, most: int) -> list[Predictions]:
    """Take the likeliest class of every prediction, each class judged by itself."""
    logits, labels = output.logits.max(dim=-1)
    return _best(logits.sigmoid(), labels, output.pred_boxes, most)


def sigmoid_all(output: Any, most: int) -> list[Predictions]:
    """Take the likeliest pairs of a query and a class, as many as there are queries."""
    chances = output.logits.sigmoid()
    queries, classes = chances.shape[1:]
    scores, pair = chances.flatten(1).topk(min(most, queries), dim=1)
    boxes = torch.gather(output.pred_boxes, 1, (pair // classes)[..., None].expand(-1, -1, 4))
    return [Predictions(*image) for image in zip(scores, pair % classes, boxes, strict=True)]


def _best(scores: Tensor, labels: Tensor, boxes: Tensor, most: int) -> list[Predictions]:
    """Keep the most likely of (B, Q) scores, best first."""
    kept, order = scores.topk(min(most, scores.shape[1]), dim=1)
    return [
        Predictions(score, label[place], box[place])
        for score, label, box, place in zip(kept, labels, boxes, order, strict=True)
    ]
