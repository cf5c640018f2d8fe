"""Feature maps to boxes: Co-DETR in plain PyTorch, and `Detector`, which takes images and returns results."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.detect.checkpoint import Conversion, convert_co_detr, write_co_detr
    from vgtok.detect.config import DETECTORS, DetectorConfig, Head, detector_configuration
    from vgtok.detect.detector import Detector
    from vgtok.detect.loading import from_pretrained, load, push, shipped_models
    from vgtok.detect.model import CoDetr, detection_flops, detector_parameters
    from vgtok.detect.result import Result, Timings
    from vgtok.detect.saving import load_detector, save_detector
    from vgtok.detect.tracking import Tracker, count_tracks

__all__ = [
    "DETECTORS",
    "CoDetr",
    "Conversion",
    "Detector",
    "DetectorConfig",
    "Head",
    "Result",
    "Timings",
    "Tracker",
    "convert_co_detr",
    "count_tracks",
    "detection_flops",
    "detector_configuration",
    "detector_parameters",
    "from_pretrained",
    "load",
    "load_detector",
    "push",
    "save_detector",
    "shipped_models",
    "write_co_detr",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "checkpoint": ["Conversion", "convert_co_detr", "write_co_detr"],
        "config": ["DETECTORS", "DetectorConfig", "Head", "detector_configuration"],
        "detector": ["Detector"],
        "loading": ["from_pretrained", "load", "push", "shipped_models"],
        "model": ["CoDetr", "detection_flops", "detector_parameters"],
        "result": ["Result", "Timings"],
        "saving": ["load_detector", "save_detector"],
        "tracking": ["Tracker", "count_tracks"],
    },
)
