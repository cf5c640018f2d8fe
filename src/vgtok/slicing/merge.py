"""Merge the boxes of overlapping tiles, or of tiles and a coarse look at the whole, into one list without doubles.

Boxes of several passes over one frame enter, in pixels of the frame; one list, best score first, leaves. A detector has
already suppressed its own doubles, so only boxes of different passes are compared.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.overlap import intersections, iou

Method = Literal["nms", "fusion"]

METHODS: tuple[Method, ...] = ("nms", "fusion")

SAME_OBJECT = 0.5
"""IoU above which boxes of one class from different passes are one object."""

COVERED = 0.5
"""Share of a cut box that a whole box must cover to stand for the object of both."""

_BLOCK = 256
"""Boxes compared with all others at a time, which bounds memory."""


@dataclass(frozen=True, eq=False)
class Merged:
    """Boxes (K, 4) float64 x0 y0 x1 y1, scores (K,) and labels (K,) int64, best score first.

    `index` (K,) is the place of each box, or of the best of the boxes it was fused from, in what was merged.
    """

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    index: NDArray[np.int64]


def cut_by_tile(
    boxes: NDArray[np.floating[Any]],
    tile: tuple[float, float, float, float],
    frame_size: tuple[float, float],
    margin: float = 2.0,
) -> NDArray[np.bool_]:
    """Return which (N, 4) boxes found in a tile x0 y0 x1 y1 end within `margin` px of a border inside the frame.

    All in pixels of the frame, whose size is (height, width). An object that reaches over such a border is cut there;
    at the border of the frame itself there is nothing more to see.
    """
    height, width = frame_size
    x0, y0, x1, y1 = tile
    left, top, right, bottom = np.asarray(boxes, dtype=np.float64).reshape(-1, 4).T
    cut = np.zeros(len(left), dtype=np.bool_)
    if x0 > 0:
        cut |= left < x0 + margin
    if y0 > 0:
        cut |= top < y0 + margin
    if x1 < width:
        cut |= right > x1 - margin
    if y1 < height:
        cut |= bottom > y1 - margin
    return cut


def merge_boxes(
    boxes: NDArray[np.floating[Any]],
    scores: NDArray[np.floating[Any]],
    labels: NDArray[np.integer[Any]],
    source: NDArray[np.integer[Any]],
    cut: NDArray[np.bool_],
    *,
    method: Method = "nms",
    iou_threshold: float = SAME_OBJECT,
) -> Merged:
    """Merge (N, 4) x0 y0 x1 y1 boxes of one frame with (N,) scores and labels.

    `source` (N,) is the number of the pass that found a box; boxes of one pass never suppress each other. `cut` (N,)
    marks boxes that `cut_by_tile` found cut: one gives way to any whole box of its class that covers half of it. Then
    'nms' keeps the best of the boxes of one object, 'fusion' their mean weighted by score, with the best score.
    """
    if method not in METHODS:
        raise InputError(f"merge: '{method}' is not one of {', '.join(METHODS)}")
    places = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    values = np.asarray(scores, dtype=np.float64).reshape(-1)
    classes = np.asarray(labels).reshape(-1).astype(np.int64)
    order = np.argsort(-values, kind="stable")
    order = order[~_given_way(places, classes, np.asarray(source), np.asarray(cut, dtype=np.bool_))[order]]
    leader = _leaders(places[order], classes[order], np.asarray(source)[order], iou_threshold)
    index = order[leader == np.arange(len(order))]
    kept = places[index]
    if method == "fusion":
        kept = _fused(places[order], values[order], leader)
    return Merged(kept, values[index], classes[index], index)


def _given_way(
    boxes: NDArray[np.float64], labels: NDArray[np.int64], source: NDArray[Any], cut: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which (N,) cut boxes a whole box of the same label from another pass covers."""
    gone = np.zeros(len(boxes), dtype=np.bool_)
    for label in np.unique(labels[cut]).tolist():
        parts, wholes = np.flatnonzero(cut & (labels == label)), np.flatnonzero(~cut & (labels == label))
        for start in range(0, len(parts), _BLOCK):
            block = parts[start : start + _BLOCK]
            area = (boxes[block, 2:] - boxes[block, :2]).prod(axis=1)
            covered = intersections(boxes[block], boxes[wholes]) > COVERED * area[:, None]
            covered &= source[block][:, None] != source[wholes]
            gone[block] = covered.any(axis=1)
    return gone


def _leaders(
    boxes: NDArray[np.float64], labels: NDArray[np.int64], source: NDArray[Any], threshold: float
) -> NDArray[np.int64]:
    """Return for (n,) boxes, best first, the place of the best box that is the same object; its own if that is it."""
    leader = np.arange(len(boxes))
    for label in np.unique(labels).tolist():
        members = np.flatnonzero(labels == label)
        alive = np.ones(len(members), dtype=np.bool_)
        for start in range(0, len(members), _BLOCK):
            block = slice(start, start + _BLOCK)
            over = iou(boxes[members[block]], boxes[members[start:]]) > threshold
            over &= source[members[block]][:, None] != source[members[start:]]
            for place, row in enumerate(over, start=start):
                if alive[place]:
                    follows = start + np.flatnonzero(row)
                    follows = follows[(follows > place) & alive[follows]]
                    alive[follows] = False
                    leader[members[follows]] = members[place]
    return leader


def _fused(boxes: NDArray[np.float64], scores: NDArray[np.float64], leader: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean box of every leader and its followers, weighted by score, (K, 4)."""
    weights = np.maximum(scores, 1e-12)
    total = np.bincount(leader, weights, minlength=len(boxes))
    sums = np.stack([np.bincount(leader, weights * side, minlength=len(boxes)) for side in boxes.T], axis=1)
    leads = leader == np.arange(len(boxes))
    return np.asarray(sums[leads] / total[leads, None])
