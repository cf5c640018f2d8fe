"""Compare two sets of detections of the same images: differences of AP with paired bootstrap intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, detections_of
from vgtok.evaluate.evaluation import Scored
from vgtok.evaluate.protocols import ScoringRules
from vgtok.evaluate.resampling import draws, interval, resampled_metrics
from vgtok.files import read_json

RESAMPLES = 1000
_CHUNK = 50
"""Resamples at a time, which bounds memory: a resample weighs every detection of a class."""

DETECTIONS_FIELD = "detections_file"
"""Field of an evaluation's JSON that names the COCO results file it scored."""


@dataclass(frozen=True)
class Difference:
    """One metric in points: its `value`, that of the `other`, and the 95% interval of the difference."""

    metric: str
    value: float
    other: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """The value minus the other."""
        return self.value - self.other

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> str:
        """'significant' or 'not significant'."""
        return "significant" if self.significant else "not significant"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference for JSON."""
        return {**vars(self), "difference": self.difference, "significant": self.significant}


def compare_scored(
    scored: Scored, other: Scored, protocol: ScoringRules, resamples: int = RESAMPLES
) -> tuple[Difference, ...]:
    """Return the difference of every metric that has boxes; both come from `apply_protocol` on the same images.

    Each resample draws the images once for both, so that what makes an image hard for both cancels out.
    """
    images = len(scored.truth.image_ids)
    if images < 2:
        raise InputError("--compare: an interval needs two images or more, and the data has one")
    whole = np.ones((1, images), dtype=np.int64)
    values, others = (resampled_metrics(one, protocol, whole) for one in (scored, other))
    counts = draws(images, resamples)
    parts = [_differences(scored, other, protocol, part) for part in _chunks(counts)]
    found = []
    for metric, value in values.items():
        if np.isfinite(value[0]):
            low, high = interval(np.concatenate([part[metric] for part in parts]))
            found.append(Difference(metric, float(value[0]), float(others[metric][0]), low, high))
    return tuple(found)


def _chunks(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(counts), _CHUNK):
        yield counts[start : start + _CHUNK]


def _differences(
    scored: Scored, other: Scored, protocol: ScoringRules, counts: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    first, second = (resampled_metrics(one, protocol, counts) for one in (scored, other))
    return {metric: values - second[metric] for metric, values in first.items()}


def read_other(path: Path, dataset: AnnotatedDataset) -> Detections:
    """Read the detections to compare with: a COCO results file, or the JSON or report folder of an evaluation."""
    path = path / "evaluation.json" if path.is_dir() else path
    document = read_json(path)
    source = path
    if isinstance(document, dict):
        if document.get("images") not in (None, len(dataset.images)):
            raise InputError(
                f"{path}: of {document['images']} images, but here are {len(dataset.images)}; evaluate both on the same"
            )
        named = document.get(DETECTIONS_FIELD)
        if not isinstance(named, str):
            raise InputError(
                f"{path}: has no detections to compare with; run that evaluation with --report FOLDER, then "
                "--compare FOLDER"
            )
        # Reports may have been moved as a whole.
        beside = path.parent / Path(named).name
        source = beside if beside.is_file() else Path(named)
        document = read_json(source)
    if not isinstance(document, list):
        raise InputError(f"{source}: neither a COCO results file nor the JSON or report folder of an evaluation")
    return detections_of(document, dataset, str(source))


def results_rows(detections: Detections, dataset: AnnotatedDataset) -> list[dict[str, Any]]:
    """Return detections as the rows of a COCO results file, by the ids of the data set."""
    return [
        {
            "image_id": dataset.image_ids[image],
            "category_id": dataset.category_ids[label],
            "bbox": [round(value, 3) for value in box],
            "score": round(score, 6),
        }
        for box, score, label, image in zip(
            detections.boxes.tolist(),
            detections.scores.tolist(),
            detections.labels.tolist(),
            detections.image.tolist(),
            strict=True,
        )
    ]
