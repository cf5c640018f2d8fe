"""Evaluate detections by a protocol: metrics, results per class, and the mistakes behind them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset, summarize
from vgtok.evaluate.detections import Detections, GroundTruth, ground_truth, leading
from vgtok.evaluate.ignored import without_ignored
from vgtok.evaluate.protocols import EVERYTHING, Protocol
from vgtok.evaluate.scoring import THRESHOLDS, matches, precision_curves

_AT_75 = int(np.argmin(np.abs(THRESHOLDS - 0.75)))


@dataclass(frozen=True)
class ClassResult:
    """One class: its scored boxes, AP and AP50 in points (None without boxes), and what it adds to the mean AP."""

    name: str
    boxes: int
    ap: float | None
    ap50: float | None
    share: float | None


@dataclass(frozen=True)
class Evaluation:
    """Results of one protocol, every AP in points (0 to 100), None where no box lies in its band.

    `metrics` holds AP, AP50, AP75 and the bands of the protocol; `band_boxes` how many scored boxes each band holds,
    every box in one band; `precision` (10, 101) is the mean over classes per IoU threshold at recalls 0, 0.01, ..., 1.
    `band_classes` opens the protocol's own band by class. `ignored` counts detections that count neither way.
    """

    protocol: Protocol
    data: str
    images: int
    instances: int
    detections: int
    ignored: int
    metrics: Mapping[str, float | None]
    band_boxes: Mapping[str, int]
    classes: tuple[ClassResult, ...]
    band_classes: tuple[ClassResult, ...]
    precision: NDArray[np.float64]
    notes: tuple[str, ...]

    @property
    def max_detections(self) -> int:
        """The most detections of one class that count in one image."""
        return self.protocol.max_detections

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON has it."""
        return {
            "protocol": self.protocol.name,
            "data": self.data,
            **self.metrics,
            "max_detections": self.max_detections,
            "images": self.images,
            "instances": self.instances,
            "detections": self.detections,
            "ignored_detections": self.ignored,
            "band_boxes": dict(self.band_boxes),
            "classes": list(map(vars, self.classes)),
            "notes": list(self.notes),
        } | ({f"{self.protocol.class_band}_classes": list(map(vars, self.band_classes))} if self.band_classes else {})


@dataclass(frozen=True)
class Scored:
    """What a protocol leaves to be scored: boxes and the detections that count, in an order of their own."""

    truth: GroundTruth
    detections: Detections
    ignored: int


def apply_protocol(dataset: AnnotatedDataset, detections: Detections, protocol: Protocol) -> Scored:
    """Read the ground truth, take out what is ignored, then cap.

    In that order: a detection that counts neither way must not push another over the cap.
    """
    truth = ground_truth(dataset, protocol.region_roles)
    truth, kept = without_ignored(truth, detections, protocol.drops_boxes)
    return Scored(truth, leading(kept, protocol.max_detections), len(detections) - len(kept))


def evaluate(dataset: AnnotatedDataset, detections: Detections, protocol: Protocol) -> Evaluation:
    """Score detections against a data set."""
    return evaluate_scored(dataset.name, apply_protocol(dataset, detections, protocol), len(detections), protocol)


def evaluate_scored(data: str, scored: Scored, detections: int, protocol: Protocol) -> Evaluation:
    """Score what `apply_protocol` left of `detections` detections."""
    truth = scored.truth
    ranges = [EVERYTHING, *protocol.bands.values()]
    curves = precision_curves(truth, scored.detections, ranges, protocol.max_detections)
    metrics = {
        "AP": _points(curves[..., 0]),
        "AP50": _points(curves[0, ..., 0]),
        "AP75": _points(curves[_AT_75, ..., 0]),
        **{name: _points(curves[..., number]) for number, name in enumerate(protocol.bands, start=1)},
    }
    band = list(protocol.bands).index(protocol.class_band) + 1 if protocol.class_band else None
    present = curves[..., 0][:, :, curves[0, 0, :, 0] >= 0]
    return Evaluation(
        protocol=protocol,
        data=data,
        images=len(truth.image_ids),
        instances=truth.instances,
        detections=detections,
        ignored=scored.ignored,
        metrics=metrics,
        band_boxes={name: int(_within(truth, bounds).sum()) for name, bounds in protocol.bands.items()},
        classes=_classes(truth, curves[..., 0], EVERYTHING),
        band_classes=() if band is None else _classes(truth, curves[..., band], ranges[band]),
        precision=present.mean(axis=2) if present.size else np.zeros(present.shape[:2]),
        notes=_notes(truth, protocol),
    )


def _classes(truth: GroundTruth, curves: NDArray[np.float64], bounds: tuple[float, float]) -> tuple[ClassResult, ...]:
    """Results by class of one band's (10, 101, K) curves."""
    counts = np.bincount(truth.labels[_within(truth, bounds)], minlength=len(truth.names))
    results = []
    # Classes without a box have no AP and no part in the mean.
    present = int((curves[0, 0] >= 0).sum())
    for label, name in enumerate(truth.names):
        average = _points(curves[:, :, label])
        share = None if average is None else average / present
        results.append(ClassResult(name, int(counts[label]), average, _points(curves[0, :, label]), share))
    return tuple(results)


def _within(truth: GroundTruth, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """Scored boxes from the lower bound up to, not including, the upper: each box in one band."""
    return ~truth.crowd & (truth.areas >= bounds[0]) & (truth.areas < bounds[1])


def _points(curves: NDArray[np.float64]) -> float | None:
    """Mean precision in points, over what exists."""
    values = curves[curves > -1]
    return 100 * float(values.mean()) if values.size else None


def _notes(truth: GroundTruth, protocol: Protocol) -> tuple[str, ...]:
    notes = summarize(truth.problems)
    if truth.unused_regions:
        notes.append(
            f"{truth.unused_regions} ignored regions or others of the data play no part in protocol {protocol.name}"
        )
    return tuple(notes)


IOU = 0.5


@dataclass(frozen=True)
class Mistakes:
    """Verdicts at IoU 0.5 on detections of at least `threshold`.

    `shown` are those detections with `correct` (N,) and `neutral` (N,) marks, `found` (M,) marks the boxes;
    `missed` and `false` (I,) count per image.
    """

    threshold: float
    truth: GroundTruth
    shown: Detections
    correct: NDArray[np.bool_]
    neutral: NDArray[np.bool_]
    found: NDArray[np.bool_]
    missed: NDArray[np.int64]
    false: NDArray[np.int64]

    @property
    def precision(self) -> float:
        """The share of the shown detections that found a box, those that count neither way left out."""
        judged = int((~self.neutral).sum())
        return float(self.correct.sum() / judged) if judged else 0.0

    @property
    def recall(self) -> float:
        """The share of the scored boxes that were found."""
        return float(self.found.sum() / self.truth.instances) if self.truth.instances else 0.0

    def worst(self, count: int) -> list[int]:
        """Indices of the images with most mistakes, the worst first; images without any are left out."""
        total = self.missed + self.false
        order = np.argsort(-total, kind="stable")[:count]
        return [int(index) for index in order if total[index]]


def find_mistakes(scored: Scored, max_detections: int, threshold: float | None = None) -> Mistakes:
    """Match and count at a score, the one with the best F1 over the whole set unless one is given."""
    truth = scored.truth
    if threshold is None:
        verdict = matches(truth, scored.detections, max_detections, IOU)
        judged = ~verdict.neutral
        threshold = _best_threshold(scored.detections.scores[judged], verdict.correct[judged], truth)
    chosen = scored.detections.scores >= threshold
    shown = scored.detections.take(chosen)
    # Matching goes by falling score, so that what lies below the threshold changes nothing above it.
    again = matches(truth, shown, max_detections, IOU)
    images = len(truth.image_ids)
    false = ~again.correct & ~again.neutral
    return Mistakes(
        threshold,
        truth,
        shown,
        again.correct,
        again.neutral,
        again.found,
        missed=np.bincount(truth.image[~again.found & ~truth.crowd], minlength=images),
        false=np.bincount(shown.image[false], minlength=images),
    )


def _best_threshold(scores: NDArray[np.float64], correct: NDArray[np.bool_], truth: GroundTruth) -> float:
    """The score with the highest F1; the lowest of those where several tie."""
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(correct[order]) / (np.arange(1, len(scores) + 1) + truth.instances)
    # A threshold takes all detections of one score or none.
    last = np.r_[np.diff(scores[order]) != 0, True]
    candidates = np.flatnonzero(last)
    best = candidates[len(candidates) - 1 - int(np.argmax(f1[candidates][::-1]))]
    return float(scores[order][best])
