"""Where a detector errs, image by image: boxes it missed and detections that found nothing, at its best threshold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgtok.evaluate.boxes import Detections, GroundTruth
from vgtok.evaluate.evaluation import Scored
from vgtok.evaluate.scoring import matches

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
