"""Score detections by the protocol of each benchmark, with confidence intervals."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.evaluate.classes import label_map
    from vgtok.evaluate.comparison import Difference, compare_scored
    from vgtok.evaluate.detections import (
        Detections,
        GroundTruth,
        detections_of,
        ground_truth,
        read_predictions,
        run_detector,
    )
    from vgtok.evaluate.evaluation import ClassResult, Evaluation, Mistakes, apply_protocol, evaluate, find_mistakes
    from vgtok.evaluate.protocols import PROTOCOLS, ScoringRules, protocol_for
    from vgtok.evaluate.resampling import interval, resampled_metrics

__all__ = [
    "PROTOCOLS",
    "ClassResult",
    "Detections",
    "Difference",
    "Evaluation",
    "GroundTruth",
    "Mistakes",
    "ScoringRules",
    "apply_protocol",
    "compare_scored",
    "detections_of",
    "evaluate",
    "find_mistakes",
    "ground_truth",
    "interval",
    "label_map",
    "protocol_for",
    "read_predictions",
    "resampled_metrics",
    "run_detector",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "classes": ["label_map"],
        "comparison": ["Difference", "compare_scored"],
        "detections": [
            "Detections",
            "GroundTruth",
            "detections_of",
            "ground_truth",
            "read_predictions",
            "run_detector",
        ],
        "evaluation": ["ClassResult", "Evaluation", "Mistakes", "apply_protocol", "evaluate", "find_mistakes"],
        "protocols": ["PROTOCOLS", "ScoringRules", "protocol_for"],
        "resampling": ["interval", "resampled_metrics"],
    },
)
