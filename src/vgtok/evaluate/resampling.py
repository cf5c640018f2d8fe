"""Confidence intervals: bootstrap over images, and statistics of repeated runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, GroundTruth, members_by_image
from vgtok.evaluate.evaluation import Scored
from vgtok.evaluate.protocols import EVERYTHING, ScoringRules
from vgtok.evaluate.scoring import THRESHOLDS
from vgtok.overlap import corners, intersections, iou_xywh

RUNS = 3
"""Runs behind every trained cell of the paper."""


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation of the runs of one cell."""
    if len(values) < 2:
        raise InputError(f"seeds: a deviation needs two runs or more, got {len(values)}")
    return float(np.mean(values)), float(np.std(values, ddof=1))


def pooled_deviation(deviations: Sequence[float]) -> float:
    """Return the within-cell deviation over cells of equally many runs: the root of their mean variance."""
    if not len(deviations):
        raise InputError("seeds: there are no cells to pool")
    return float(np.sqrt(np.mean(np.square(deviations))))


def standard_error_of_difference(deviation: float, runs: int = RUNS) -> float:
    """Return the standard error of the difference of two means of `runs` runs each."""
    return deviation * math.sqrt(2 / runs)


def seed_floor(deviation: float, runs: int = RUNS) -> float:
    """Return the smallest significant difference: twice its standard error."""
    return 2 * standard_error_of_difference(deviation, runs)


RECALLS = np.linspace(0.0, 1.0, 101)
_WRONG, _RIGHT, _NEUTRAL = 0, 1, 2
_FAR = min(THRESHOLDS)


@dataclass(frozen=True)
class Verdicts:
    """One class in one range of areas.

    `state` (10 IoUs, D) is wrong, right or neutral for each detection, best first; `image` (D,) is the image of
    each, `positives` (I,) the scored boxes of each image.
    """

    state: NDArray[np.int8]
    image: NDArray[np.int64]
    positives: NDArray[np.int64]


def draws(images: int, resamples: int, seed: int = 0) -> NDArray[np.int64]:
    """Return how often each image is drawn in each resample: (resamples, images), each row sums to `images`."""
    return np.random.default_rng(seed).multinomial(images, np.full(images, 1 / images), size=resamples)


def resampled_metrics(
    scored: Scored, protocol: ScoringRules, counts: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Return AP, AP50, AP75 and the protocol's bands in points, (R,) each, for (R, images) draws; NaN without boxes.

    `scored` comes from `apply_protocol`: detections capped, and ordered by image, class and descending score.
    """
    at_75 = int(np.argmin(np.abs(THRESHOLDS - 0.75)))
    parts: dict[str, NDArray[np.float64]] = {}
    for name, bounds in {"AP": EVERYTHING, **protocol.bands}.items():
        # (classes, 10 IoUs, R)
        precision = np.array([_average_precision(verdict, counts) for verdict in verdicts(scored, bounds)])
        parts[name] = _mean(precision)
        if name == "AP":
            parts["AP50"], parts["AP75"] = _mean(precision[:, :1]), _mean(precision[:, at_75 : at_75 + 1])
    return parts


def interval(samples: NDArray[np.float64], share: float = 0.95) -> tuple[float, float]:
    """Return the bounds of the middle `share` of resampled values, without NaN."""
    known = samples[np.isfinite(samples)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def verdicts(scored: Scored, bounds: tuple[float, float]) -> Iterator[Verdicts]:
    """Yield the verdict on every detection, class by class, by the rules of COCO."""
    truth, detections = scored.truth, scored.detections
    images = len(truth.image_ids)
    ignored = truth.crowd | (truth.areas < bounds[0]) | (truth.areas > bounds[1])
    areas = np.prod(detections.boxes[:, 2:], axis=1)
    outside = (areas < bounds[0]) | (areas > bounds[1])
    for label in range(len(truth.names)):
        members = np.flatnonzero(detections.labels == label)
        boxes = np.flatnonzero(truth.labels == label)
        # An unmatched detection is wrong, or neutral if its own size is outside the range.
        state = np.where(outside[members], _NEUTRAL, _WRONG).astype(np.int8)[None].repeat(len(THRESHOLDS), axis=0)
        places = members_by_image(detections.image[members], images)
        for index, own in enumerate(members_by_image(truth.image[boxes], images)):
            if len(own) and len(places[index]):
                _match(truth, boxes[own], ignored, detections, members, places[index], state)
        order = np.argsort(-detections.scores[members], kind="stable")
        positives = np.bincount(truth.image[boxes[~ignored[boxes]]], minlength=images)
        yield Verdicts(state[:, order], detections.image[members][order], positives)


def _match(
    truth: GroundTruth,
    boxes: NDArray[np.int64],
    ignored: NDArray[np.bool_],
    detections: Detections,
    members: NDArray[np.int64],
    places: NDArray[np.int64],
    state: NDArray[np.int8],
) -> None:
    """Pair the detections of one image and class, best first, at all thresholds; writes their columns of `state`."""
    # Scored boxes first: a detection matches an ignored one only if no other is left.
    boxes = boxes[np.argsort(ignored[boxes], kind="stable")]
    crowd, skipped = truth.crowd[boxes], ignored[boxes]
    overlap = iou_xywh(detections.boxes[members[places]], truth.boxes[boxes])
    if crowd.any():
        overlap[:, crowd] = _inside(detections.boxes[members[places]], truth.boxes[boxes[crowd]])
    limits = np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]
    free = np.ones((len(THRESHOLDS), len(boxes)), dtype=np.bool_)
    rows = np.arange(len(THRESHOLDS))
    for place, own in zip(places, overlap, strict=True):
        if own.max() < _FAR:
            continue
        # Among scored boxes, then among ignored ones, the largest overlap; of equal ones the last.
        rank = np.where((own >= limits) & (free | crowd), own + np.where(skipped, 0.0, 2.0), -1.0)
        best = rank.shape[1] - 1 - rank[:, ::-1].argmax(axis=1)
        found = rank[rows, best] >= 0
        state[found, place] = np.where(skipped[best[found]], _NEUTRAL, _RIGHT)
        free[rows[found], best[found]] = False


def _inside(detections: NDArray[np.float64], crowds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (N, M) share of each detection inside each crowd, both x y width height."""
    areas = np.prod(detections[:, 2:], axis=1)[:, None]
    return np.asarray(intersections(corners(detections), corners(crowds)) / np.maximum(areas, 1e-12))


def _average_precision(verdict: Verdicts, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the (10 IoUs, R) average precision of one class in each resample; NaN without scored boxes."""
    totals = counts @ verdict.positives
    result = np.zeros((len(THRESHOLDS), len(counts)))
    for step, state in enumerate(verdict.state):
        counted = np.flatnonzero(state != _NEUTRAL)
        right = np.flatnonzero(state[counted] == _RIGHT)
        if not len(right):
            continue
        # Beyond the last right detection recall no longer grows.
        weights = counts[:, verdict.image[counted[: right[-1] + 1]]]
        found = weights[:, right].cumsum(axis=1)
        precision = found / np.maximum(weights.cumsum(axis=1)[:, right], 1)
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        # How many of the 101 recalls each right detection is the first to reach; the first one also reaches 0.
        reached = np.searchsorted(RECALLS, found / np.maximum(totals, 1)[:, None], side="right")
        gained = np.diff(reached, axis=1, prepend=0)
        result[step] = (envelope * gained).sum(axis=1) / len(RECALLS)
    result[:, totals == 0] = np.nan
    return result


def _mean(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of (classes, IoUs, R) as (R,) points, over the classes with boxes."""
    known = np.isfinite(precision)
    count = known.sum(axis=(0, 1))
    total = np.where(known, precision, 0.0).sum(axis=(0, 1))
    return np.where(count > 0, 100 * total / np.maximum(count, 1), np.nan)
