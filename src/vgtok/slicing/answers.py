"""What a detector of any kind answered, as plain arrays: boxes, scores, labels and the names it told."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

_WANTED = "supervision.Detections, a vgtok result, or boxes (N, 4), scores (N,) and labels (N,)"


@dataclass(frozen=True, eq=False)
class Answer:
    """Boxes (N, 4) float64 x0 y0 x1 y1, scores (N,) float64, labels (N,) int64, and class names by label."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    names: Mapping[int, str] = field(default_factory=dict)

    def take(self, kept: NDArray[np.bool_]) -> "Answer":
        """Return a part of it."""
        return replace(self, boxes=self.boxes[kept], scores=self.scores[kept], labels=self.labels[kept])

    def moved(self, boxes: NDArray[np.float64]) -> "Answer":
        """Return the same objects with other boxes."""
        return replace(self, boxes=boxes)


def read_answer(answer: Any, size: tuple[int, int]) -> Answer:
    """Read what a callback returned for an image of (height, width) px; boxes are clipped to it, empty ones dropped.

    Arrays may be anything numpy reads, or tensors on any device.
    """
    names: dict[int, str] = {}
    if hasattr(answer, "xyxy") and hasattr(answer, "confidence"):
        boxes, scores, labels = answer.xyxy, answer.confidence, answer.class_id
        told = (getattr(answer, "data", None) or {}).get("class_name")
    elif hasattr(answer, "boxes") and hasattr(answer, "scores") and hasattr(answer, "labels"):
        boxes, scores, labels = answer.boxes, answer.scores, answer.labels
        told = None
        names = dict(enumerate(getattr(answer, "class_names", ())))
    elif isinstance(answer, list | tuple) and len(answer) == 3:
        boxes, scores, labels = answer
        told = None
    else:
        raise InputError(f"callback: returned a {type(answer).__name__}, not {_WANTED}")
    places = _array(boxes, "boxes").reshape(-1, 4) if np.size(boxes) else np.zeros((0, 4))
    count = len(places)
    # supervision leaves out what a detector does not say.
    values = np.ones(count) if scores is None else _array(scores, "scores").reshape(-1)
    classes = (
        np.zeros(count, dtype=np.int64) if labels is None else _array(labels, "labels").reshape(-1).astype(np.int64)
    )
    if len(values) != count or len(classes) != count:
        raise InputError(f"callback: returned {count} boxes, {len(values)} scores and {len(classes)} labels")
    if (classes < 0).any():
        raise InputError(f"callback: returned the label {classes.min()}; labels are 0 or more")
    if told is not None:
        names = {label: str(name) for label, name in zip(classes.tolist(), told, strict=False)}
    places = np.clip(places, 0, np.array([size[1], size[0]] * 2))
    whole = (places[:, 2] > places[:, 0]) & (places[:, 3] > places[:, 1])
    return Answer(places[whole], values[whole], classes[whole], names)


def _array(values: Any, what: str) -> NDArray[np.float64]:
    try:
        plain = values.detach().cpu() if hasattr(values, "detach") else values
        array = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"callback: returned {what} that are no numbers; it must return {_WANTED}") from None
    if what == "boxes" and (array.ndim != 2 or array.shape[1] != 4):
        raise InputError(f"callback: returned boxes of shape {array.shape}, not (N, 4)")
    if not np.isfinite(array).all():
        raise InputError(f"callback: returned NaN or infinite {what}")
    return array
