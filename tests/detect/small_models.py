"""Detectors small enough for a test, in the public layout's shape: five levels, both auxiliary heads, EVA-02 blocks."""

from dataclasses import replace
from typing import Any

import torch

from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr

ENCODER = {
    "dim": 48,
    "heads": 3,
    "hidden": 128,
    "depth": 2,
    "table": (4, 4),
    "window": 8,
    "global_blocks": (1,),
    "drop_path": 0.0,
    "fusion": (),
}
SMALL = DetectorConfig(
    "eva02-large",
    ("car", "van", "bus"),
    ENCODER,
    queries=20,
    dim=32,
    heads=4,
    points=2,
    hidden=64,
    encoder_layers=2,
    decoder_layers=2,
    denoising=10,
    positives=10,
    roi_hidden=64,
    roi_samples=16,
    proposals_before=50,
    proposals=20,
)


def small_model(seed: int = 3, **changes: Any) -> CoDetr:
    """Every weight random and far from its initialisation, so that no part can hide behind a zero."""
    model = CoDetr(replace(SMALL, **changes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def small_detector(seed: int = 3, **changes: Any) -> Detector:
    return Detector(small_model(seed, **changes), canvas=(192, 128), license="for tests only")
