"""A data set, detections and a protocol in; an `Evaluation` out, with its cap and counts beside every AP."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.rows import summarize
from vgtok.evaluate.boxes import Detections, GroundTruth, ground_truth, leading
from vgtok.evaluate.ignored import without_ignored
from vgtok.evaluate.protocols import EVERYTHING, Protocol
from vgtok.evaluate.scoring import THRESHOLDS, precision_curves

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
