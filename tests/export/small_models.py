"""Detectors whose graphs are small enough to be traced in a test, every weight far from its initialization."""

from typing import Any

from tests.detect.small_models import small_model
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector

WINDOWED_VIT = {
    "dim": 24,
    "heads": 2,
    "hidden": 48,
    "depth": 2,
    "table": (6, 6),
    "window": 16,
    "global_blocks": (1,),
    "prefix": 0,
    "spread": 8,
}
"""The encoder of co-detr-vit-tiny, cut down."""

WINDOWED_EVA02 = {
    "dim": 24,
    "heads": 2,
    "hidden": 64,
    "depth": 2,
    "table": (4, 4),
    "window": 8,
    "global_blocks": (1,),
    "drop_path": 0.0,
}
"""Rotations, SwiGLU with its norm, no bias on keys, proportional keys."""


def traceable_detector(
    encoder: str,
    overrides: dict[str, Any],
    license: str = "for tests only",
    head: Head = "query",
    strides: tuple[int, ...] = (16, 32),
) -> Detector:
    """One layer and two levels: what repeats in a graph is traced once."""
    model = small_model(
        encoder=encoder,
        encoder_overrides=overrides,
        strides=strides,
        encoder_layers=1,
        decoder_layers=1,
        auxiliary=() if head == "query" else (head,),
        auxiliary_norm="channel",
    )
    return Detector(model, canvas=(512, 384), license=license, head=head)
