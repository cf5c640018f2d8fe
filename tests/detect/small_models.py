"""Detectors small enough for a test, in the public layout's shape: five levels, both auxiliary heads, EVA-02 blocks."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vgtok.detect.boxes import Prediction
from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.encode.modes import encode_dense

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
    """Every weight random and far from its initialization, so that no part can hide behind a zero."""
    # The same weights whatever ran before.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CoDetr(replace(SMALL, **changes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def small_detector(seed: int = 3, **changes: Any) -> Detector:
    return Detector(small_model(seed, **changes), canvas=(192, 128), license="for tests only")


def predict_dense(model: CoDetr, image: Tensor) -> Prediction:
    """What a model finds in a (3, H, W) image with every cell a token, by the dense encoder the release runs."""
    maps = encode_dense(model.encoder, image[None]).maps
    return model.predict_maps([maps[0]], [(image.shape[1], image.shape[2])], 1000)[0]
