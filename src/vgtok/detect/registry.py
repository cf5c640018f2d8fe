"""Detector configurations by name: the paper's, two smaller ones, and one that two CPU cores can train."""

from dataclasses import replace
from typing import Any

from vgtok.data.visdrone import NAMES
from vgtok.detect.config import DetectorConfig
from vgtok.errors import InputError

DETECTORS: dict[str, DetectorConfig] = {
    "co-detr-eva02-large": DetectorConfig("eva02-large", NAMES),
    "co-detr-eva02-base": DetectorConfig("eva02-base", NAMES),
    "co-detr-eva02-small": DetectorConfig("eva02-small", NAMES, queries=900, hidden=1024),
    "co-detr-vit-tiny": DetectorConfig(
        "vit-tiny",
        NAMES,
        # Windows of 16 cells and no global block: what attention sees in a crop is then what it sees in a frame, and
        # as many cells as the encoder was pretrained on. The class token belongs to no window.
        {"window": 16, "global_blocks": (), "prefix": 0},
        queries=900,
        strides=(8, 16, 32),
        dim=96,
        heads=4,
        points=2,
        hidden=384,
        encoder_layers=2,
        decoder_layers=3,
        denoising=100,
        positives=100,
        roi_hidden=256,
        roi_samples=64,
        proposals_before=1000,
        proposals=300,
    ),
}
"""Every detector by name."""


def detector_configuration(name: str, **changes: Any) -> DetectorConfig:
    """The configuration called `name`, with fields changed by keyword."""
    if name not in DETECTORS:
        raise InputError(f"detector: '{name}' is not one of {', '.join(DETECTORS)}")
    return replace(DETECTORS[name], **changes)
