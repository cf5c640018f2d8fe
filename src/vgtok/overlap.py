"""Overlap of boxes, and the suppression of boxes that overlap a better one.

Every function takes numpy arrays or torch tensors and returns the same kind, on the same device; torch is not imported.
Boxes are corners x0 y0 x1 y1 except where a name says otherwise.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", NDArray[Any], "Tensor")

_BLOCK = 128
"""Boxes NMS decides at a time: a block against all later boxes must fit into a cache."""


def intersections(first: Array, second: Array) -> Array:
    """Return the (N, M) areas that (N, 4) boxes share with (M, 4) boxes."""
    xp = _namespace(first)
    # (N, 1) and (1, M) coordinates: each side of the intersections is then one (N, M) plane.
    x0, y0, x1, y1 = first.T[..., None]
    u0, v0, u1, v1 = second.T[:, None]
    shared = (xp.minimum(x1, u1) - xp.maximum(x0, u0)).clip(min=0)
    shared *= (xp.minimum(y1, v1) - xp.maximum(y0, v0)).clip(min=0)
    result: Array = shared
    return result


def iou(first: Array, second: Array) -> Array:
    """Return the (N, M) intersection over union of (N, 4) with (M, 4) boxes; 0 for boxes without area."""
    areas = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) for boxes in (first, second))
    return _over_union(intersections(first, second), *areas)


def iou_xywh(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return the `iou` of (N, 4) with (M, 4) boxes x y width height, areas by their own width and height."""
    shared = intersections(corners(first), corners(second))
    return _over_union(shared, first[:, 2] * first[:, 3], second[:, 2] * second[:, 3])


def corners(boxes: NDArray[Any]) -> NDArray[Any]:
    """Convert (N, 4) boxes x y width height to x0 y0 x1 y1."""
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def paired_iou(first: Array, second: Array) -> tuple[Array, Array]:
    """Return IoU and generalized IoU, (...,) each, of (..., 4) boxes with their partners, broadcast.

    Both are differentiable. Areas below 1e-6 count as 1e-6.
    """
    xp = _namespace(first)
    low, high = xp.maximum(first[..., :2], second[..., :2]), xp.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clip(min=0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (first, second)]
    union = (areas[0] + areas[1] - shared).clip(min=1e-6)
    outer = xp.maximum(first[..., 2:], second[..., 2:]) - xp.minimum(first[..., :2], second[..., :2])
    hull = outer.prod(-1).clip(min=1e-6)
    overlap = shared / union
    return overlap, overlap - (hull - union) / hull


def nms(boxes: Array, scores: Array, labels: Array, iou_threshold: float, most: int | None = None) -> Array:
    """Return the (K,) indices of (N, 4) boxes that no better kept box of the same label overlaps too much.

    Too much is an IoU above the threshold. Indices are sorted by score, best first; of equal scores the earlier box
    comes first and wins. `most` is the number of boxes wanted [default: all that are kept].
    """
    order = _descending(scores)
    boxes, labels = boxes[order], labels[order]
    chosen = _survivors(boxes, labels, iou_threshold) if most is None else _first(boxes, labels, iou_threshold, most)
    kept: Array = order[chosen]
    return kept


def _survivors(boxes: Array, labels: Array, iou_threshold: float) -> Array:
    """Return which of (n, 4) boxes, best first, are kept, (n,)."""
    xp = _namespace(labels)
    alive: Array = xp.ones_like(labels, dtype=bool)
    # One label at a time: overlaps across labels count for nothing.
    for label in xp.unique(labels):
        members = labels == label
        alive[members] = _kept(boxes[members], alive[members], iou_threshold)
    return alive


def _first(boxes: Array, labels: Array, iou_threshold: float, most: int) -> Array:
    """Return the (K,) first `most` of (n, 4) boxes, best first, that are kept; look no further than needed."""
    xp = _namespace(labels)
    positions: Array = xp.ones_like(labels).cumsum(0) - 1
    kept = positions[:0]
    for start in range(0, len(boxes), _BLOCK):
        if len(kept) >= most:
            break
        block, own = boxes[start : start + _BLOCK], labels[start : start + _BLOCK]
        before = (iou(boxes[kept], block) > iou_threshold) & (labels[kept][:, None] == own)
        among = (iou(block, block) > iou_threshold) & (own[:, None] == own)
        alive = _settled(among, ~before.any(0))
        kept = xp.concatenate([kept, positions[start : start + _BLOCK][alive]])
    return kept[:most]


def soft_nms(boxes: Array, scores: Array, labels: Array, iou_threshold: float, min_score: float) -> tuple[Array, Array]:
    """Lower the scores of (N, 4) boxes that overlap a better box of the same label; return (K,) indices and scores.

    Each better box with an IoU of at least the threshold multiplies the score by one minus the IoU. Boxes below
    `min_score` are dropped, except for the best box of all. The result is sorted by new score, best first.
    """
    # float32 on the host: boxes are chosen one after another, which no device does faster.
    overlap = iou(_host(boxes), _host(boxes)) * (_host(labels)[:, None] == _host(labels))
    kept, values = _soften(overlap, _host(scores), iou_threshold, min_score)
    return _like(kept, labels), _like(values, scores)


def _over_union(shared: Array, first: Array, second: Array) -> Array:
    """Divide (N, M) shared areas by the union of (N,) and (M,) areas; 0 where the union has no area."""
    union = first[:, None] + second[None] - shared
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Array = _namespace(shared).where(union > 0, shared / union, 0.0)
    return result


def _kept(boxes: Array, alive: Array, iou_threshold: float) -> Array:
    """Return which of (n, 4) boxes, best first, greedy NMS keeps; `alive` (n,) is all true and is overwritten."""
    for start in range(0, len(boxes), _BLOCK):
        stop = min(start + _BLOCK, len(boxes))
        over = iou(boxes[start:stop], boxes[start:]) > iou_threshold
        kept = _settled(over[:, : stop - start], alive[start:stop])
        alive[start:stop] = kept
        alive[stop:] &= ~over[kept][:, stop - start :].any(0)
    return alive


def _settled(over: Array, alive: Array) -> Array:
    """Return which of (n,) boxes, best first, greedy NMS keeps, given the (n, n) overlaps above the threshold.

    A box is kept unless an earlier kept box overlaps it. Each round settles at least one more box from the top, and the
    rule has one solution, so the first round that changes nothing has found it.
    """
    earlier = _namespace(over).triu(over, 1)
    kept = alive
    while True:
        settled = alive & ~(earlier & kept[:, None]).any(0)
        if bool((settled == kept).all()):
            return kept
        kept = settled


def _soften(
    overlap: NDArray[np.float32], scores: NDArray[np.float32], iou_threshold: float, min_score: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Soft-NMS of (N,) scores by their (N, N) overlaps."""
    left = scores.copy()
    weights = np.where(overlap >= iou_threshold, 1 - overlap, np.float32(1.0))
    chosen: list[int] = []
    new_scores: list[float] = []
    # Dropped boxes are below zero, and stay there whatever they are multiplied by.
    while len(left) and (best := left[(index := int(left.argmax()))]) >= 0:
        chosen.append(index)
        new_scores.append(float(best))
        left *= weights[index]
        left[left < min_score] = -1
        left[index] = -1
    return np.array(chosen, dtype=np.int64), np.array(new_scores, dtype=np.float32)


def _namespace(array: Any) -> Any:
    """Return the module with the functions for this kind of array."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def _descending(scores: Array) -> Array:
    """Return the (N,) indices that sort scores, best first, equal ones in order."""
    if isinstance(scores, np.ndarray):
        return np.argsort(-scores, kind="stable")
    return scores.argsort(descending=True, stable=True)


def _host(array: Any) -> NDArray[Any]:
    """Return an array in the host's memory, floats as float32."""
    values = array if isinstance(array, np.ndarray) else array.detach().cpu()
    if isinstance(values, np.ndarray):
        return values.astype(np.float32, copy=False) if values.dtype.kind == "f" else values
    result: NDArray[Any] = (values.float() if values.is_floating_point() else values).numpy()
    return result


def _like(values: NDArray[Any], array: Any) -> Any:
    """Return (K,) values as the kind of array that `array` is, with its device and dtype."""
    if isinstance(array, np.ndarray):
        return values.astype(array.dtype, copy=False)
    return array.new_tensor(values)
