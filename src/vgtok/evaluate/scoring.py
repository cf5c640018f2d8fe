"""Precision at every recall, IoU, class and size band, by faster-coco-eval.

Classes are evaluated one at a time: COCO never matches across classes, and so the tool's Python objects for millions
of detections never exist at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, GroundTruth
from vgtok.evaluate.protocols import EVERYTHING

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""The IoU thresholds that AP is averaged over."""


@dataclass(frozen=True)
class Matches:
    """Matches of boxes and detections at one IoU threshold.

    `found` (boxes,) and `correct` (detections,) mark matched pairs, `neutral` (detections,) matches with a crowd.
    """

    found: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    neutral: NDArray[np.bool_]


def precision_curves(
    truth: GroundTruth, detections: Detections, ranges: Sequence[tuple[float, float]], cap: int
) -> NDArray[np.float64]:
    """Return precision (10 IoUs, 101 recalls, classes, ranges); -1 where a class has no box in a range."""
    curves = np.full((len(THRESHOLDS), 101, len(truth.names), len(ranges)), -1.0)
    for label in range(len(truth.names)):
        boxes = np.flatnonzero(truth.labels == label)
        # Without scored boxes there is no AP.
        if not truth.crowd[boxes].all():
            curves[:, :, label] = _class_curves(
                truth, boxes, detections.take(detections.labels == label), ranges, cap, THRESHOLDS
            )["precision"][..., 0, :, 0]
    return curves


def matches(truth: GroundTruth, detections: Detections, cap: int, threshold: float) -> Matches:
    """Match detections with boxes at one IoU threshold, as the evaluator does."""
    found = np.zeros(len(truth.boxes), dtype=np.bool_)
    correct, neutral = np.zeros((2, len(detections)), dtype=np.bool_)
    for label in range(len(truth.names)):
        boxes = np.flatnonzero(truth.labels == label)
        members = np.flatnonzero(detections.labels == label)
        if not len(boxes) or not len(members):
            continue
        result = _class_curves(truth, boxes, detections.take(members), [EVERYTHING], cap, np.array([threshold]))
        for pair in result["matched"]:
            detection, box = (int(number) - 1 for number in pair.split("_"))
            crowd = truth.crowd[boxes[box]]
            found[boxes[box]] = not crowd
            (neutral if crowd else correct)[members[detection]] = True
    return Matches(found, correct, neutral)


def _class_curves(
    truth: GroundTruth,
    boxes: NDArray[np.int64],
    detections: Detections,
    ranges: Sequence[tuple[float, float]],
    cap: int,
    thresholds: NDArray[np.float64],
) -> Mapping[str, Any]:
    """Run the evaluator on one class, over the images that have boxes or detections of it."""
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError:
        raise InputError("evaluate: needs faster-coco-eval; pip install 'vgtok[evaluate]'") from None
    present = np.union1d(truth.image[boxes], detections.image)
    shared = {
        "images": [{"id": identity} for identity in truth.image_ids[present].tolist()],
        "categories": [{"id": 1}],
    }
    expected = _entries(truth.image_ids[truth.image[boxes]], truth.boxes[boxes], truth.areas[boxes])
    for entry, crowd in zip(expected, truth.crowd[boxes].tolist(), strict=True):
        entry["iscrowd"] = int(crowd)
    given = _entries(truth.image_ids[detections.image], detections.boxes, np.prod(detections.boxes[:, 2:], axis=1))
    for entry, score in zip(given, detections.scores.tolist(), strict=True):
        entry["score"] = score
    evaluator = COCOeval_faster(
        COCO({**shared, "annotations": expected}),
        COCO({**shared, "annotations": given}),
        "bbox",
        print_function=_silent,
    )
    evaluator.params.maxDets = [cap]
    evaluator.params.iouThrs = thresholds
    evaluator.params.areaRng = [list(bounds) for bounds in ranges]
    evaluator.params.areaRngLbl = [str(number) for number in range(len(ranges))]
    evaluator.evaluate()
    evaluator.accumulate()
    result: Mapping[str, Any] = evaluator.eval
    return result


def _entries(
    identities: NDArray[np.int64], boxes: NDArray[np.float64], areas: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return annotation objects, numbered from 1: to the evaluator 0 means 'unmatched'."""
    return [
        {"id": number, "image_id": identity, "category_id": 1, "bbox": box, "area": area, "iscrowd": 0}
        for number, (identity, box, area) in enumerate(
            zip(identities.tolist(), boxes.tolist(), areas.tolist(), strict=True), start=1
        )
    ]


def _silent(*_: object) -> None:
    """Discard what the evaluator prints."""
