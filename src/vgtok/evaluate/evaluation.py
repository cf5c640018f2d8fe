"""Evaluate detections by a protocol: metrics, results per class, and the mistakes in each image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset, summarize
from vgtok.evaluate.detections import Detections, GroundTruth, ground_truth, top_scoring
from vgtok.evaluate.protocols import EVERYTHING, ScoringRules, without_ignored
from vgtok.evaluate.scoring import THRESHOLDS, matches, precision_curves

_AT_75 = int(np.argmin(np.abs(THRESHOLDS - 0.75)))


@dataclass(frozen=True)
class ClassResult:
    """One class: its scored boxes, AP and AP50 in points (None without boxes), and its contribution to the mean AP."""

    name: str
    boxes: int
    ap: float | None
    ap50: float | None
    share: float | None


@dataclass(frozen=True)
class Evaluation:
    """Results of one protocol, every AP in points (0 to 100), None where its band has no boxes.

    `metrics` holds AP, AP50, AP75 and the bands of the protocol; `band_boxes` the number of scored boxes in each band,
    every box in one band; `precision` (10, 101) is the mean over classes per IoU threshold at recalls 0, 0.01, ..., 1.
    `band_classes` has the results per class in the protocol's own band. `ignored` counts neutral detections.
    """

    protocol: ScoringRules
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
        """Number of detections of one class that count in one image."""
        return self.protocol.max_detections

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
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
    """What is scored: boxes and the detections that count, as `top_scoring` orders them."""

    truth: GroundTruth
    detections: Detections
    ignored: int


def apply_protocol(dataset: AnnotatedDataset, detections: Detections, protocol: ScoringRules) -> Scored:
    """Read the ground truth, remove what is ignored, then cap.

    In that order, so that ignored detections do not count towards the cap.
    """
    truth = ground_truth(dataset, protocol.region_roles)
    truth, kept = without_ignored(truth, detections, protocol.drops_boxes)
    return Scored(truth, top_scoring(kept, protocol.max_detections), len(detections) - len(kept))


def evaluate(dataset: AnnotatedDataset, detections: Detections, protocol: ScoringRules) -> Evaluation:
    """Score detections against a data set."""
    return evaluate_scored(dataset.name, apply_protocol(dataset, detections, protocol), len(detections), protocol)


def evaluate_scored(data: str, scored: Scored, detections: int, protocol: ScoringRules) -> Evaluation:
    """Score the result of `apply_protocol` on `detections` detections."""
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
    """Return the results per class of one band's (10, 101, K) curves."""
    counts = np.bincount(truth.labels[_within(truth, bounds)], minlength=len(truth.names))
    results = []
    # Classes without boxes have no AP and are not in the mean.
    present = int((curves[0, 0] >= 0).sum())
    for label, name in enumerate(truth.names):
        average = _points(curves[:, :, label])
        share = None if average is None else average / present
        results.append(ClassResult(name, int(counts[label]), average, _points(curves[0, :, label]), share))
    return tuple(results)


def _within(truth: GroundTruth, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """Return which scored boxes are in [lower, upper): each box is in one band."""
    return ~truth.crowd & (truth.areas >= bounds[0]) & (truth.areas < bounds[1])


def _points(curves: NDArray[np.float64]) -> float | None:
    """Return the mean precision in points, without the -1 of classes that have no boxes."""
    values = curves[curves > -1]
    return 100 * float(values.mean()) if values.size else None


def _notes(truth: GroundTruth, protocol: ScoringRules) -> tuple[str, ...]:
    notes = summarize(truth.problems)
    if truth.unused_regions:
        notes.append(
            f"{truth.unused_regions} ignored regions or others of the data play no part in protocol {protocol.name}"
        )
    return tuple(notes)


IOU = 0.5


@dataclass(frozen=True)
class Mistakes:
    """Matches at IoU 0.5 of detections with at least `threshold`.

    `shown` are those detections with `correct` (N,) and `neutral` (N,), `found` (M,) marks the matched boxes;
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
        """Share of the shown detections that match a box, without neutral ones."""
        judged = int((~self.neutral).sum())
        return float(self.correct.sum() / judged) if judged else 0.0

    @property
    def recall(self) -> float:
        """Share of the scored boxes that were found."""
        return float(self.found.sum() / self.truth.instances) if self.truth.instances else 0.0

    def worst(self, count: int) -> list[int]:
        """Return the indices of the images with most mistakes, worst first; images without mistakes are left out."""
        total = self.missed + self.false
        order = np.argsort(-total, kind="stable")[:count]
        return [int(index) for index in order if total[index]]


def find_mistakes(scored: Scored, max_detections: int, threshold: float | None = None) -> Mistakes:
    """Match and count at a score threshold, by default the one with the best F1 over the whole set."""
    truth = scored.truth
    if threshold is None:
        verdict = matches(truth, scored.detections, max_detections, IOU)
        judged = ~verdict.neutral
        threshold = _best_threshold(scored.detections.scores[judged], verdict.correct[judged], truth)
    chosen = scored.detections.scores >= threshold
    shown = scored.detections.take(chosen)
    # Matching is in descending score, so that detections below the threshold change nothing above it.
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
    """Return the score with the highest F1, the lowest one if several tie."""
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(correct[order]) / (np.arange(1, len(scores) + 1) + truth.instances)
    # A threshold keeps all detections of equal score or none.
    last = np.r_[np.diff(scores[order]) != 0, True]
    candidates = np.flatnonzero(last)
    best = candidates[len(candidates) - 1 - int(np.argmax(f1[candidates][::-1]))]
    return float(scores[order][best])
