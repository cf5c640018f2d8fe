"""NMS and soft-NMS in numpy, for detectors that run without torch."""

import numpy as np
from numpy.typing import NDArray

OVERLAP = 0.8
"""Overlap from which a query's box loses score to a better one of its class."""

ANCHOR_OVERLAP = 0.6
"""Overlap beyond which an anchor's box is gone beside a better one of its class, or loses score to it."""

SOFT_ANCHORS = 100
"""Boxes of anchors an image keeps at most after soft suppression."""

LEAST_SCORE = 1e-3
"""Boxes below this score are gone."""


def soften(
    overlap: NDArray[np.float32], scores: NDArray[np.float32], iou_threshold: float, min_score: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Boxes left of (N,) scores with (N, N) overlaps: (K,) indices and (K,) lowered scores, best first.

    A box loses score to every better one it overlaps by the threshold or more, by one minus the overlap, and is gone
    below `min_score`. The very best box stays, whatever its score.
    """
    left = scores.astype(np.float32)
    weights = np.where(overlap >= iou_threshold, 1 - overlap, np.float32(1.0))
    chosen: list[int] = []
    new_scores: list[float] = []
    # What is gone is below zero, and stays there whatever it is multiplied by.
    while len(left) and (best := left[(index := int(left.argmax()))]) >= 0:
        chosen.append(index)
        new_scores.append(float(best))
        left *= weights[index]
        left[left < min_score] = -1
        left[index] = -1
    return np.array(chosen, dtype=np.int64), np.array(new_scores, dtype=np.float32)


def greedy(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], labels: NDArray[np.int64], iou_threshold: float
) -> NDArray[np.int64]:
    """Indices (K,) of boxes (N, 4) that no better kept one of their label (N,) overlaps by more than the threshold.

    The kept come by falling score; among equal scores the earlier box wins.
    """
    order = np.argsort(-scores, kind="stable")
    alive = np.ones(len(order), dtype=np.bool_)
    for label in np.unique(labels):
        # (n,) places in the order; a class at a time, or the overlaps of all with all would fill a cache many times.
        places = np.flatnonzero(labels[order] == label)
        over = class_overlaps(boxes[order[places]], labels[order[places]]) > iou_threshold
        left = np.ones(len(places), dtype=np.bool_)
        for place in range(len(places)):
            if left[place]:
                left[place + 1 :] &= ~over[place, place + 1 :]
        alive[places] = left
    return order[alive]


def class_overlaps(boxes: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Intersection over union of (N, 4) x0 y0 x1 y1 boxes with each other, none across (N,) labels: (N, N)."""
    x0, y0, x1, y1 = boxes.T
    wide = np.minimum(x1[:, None], x1) - np.maximum(x0[:, None], x0)
    high = np.minimum(y1[:, None], y1) - np.maximum(y0[:, None], y0)
    inside = np.maximum(wide, 0) * np.maximum(high, 0)
    area = (x1 - x0) * (y1 - y0)
    union = area[:, None] + area - inside
    counted = (labels[:, None] == labels) & (union > 0)
    return np.asarray(np.divide(inside, union, out=np.zeros_like(inside), where=counted))
