"""The registry's sizes, and configurations that make no sense."""

from typing import Any

import pytest
import torch

from vgtok.encode.config import CONFIGS, configuration
from vgtok.encode.encoder import build_encoder
from vgtok.errors import InputError

PARAMETERS = {"vit-tiny": 5.7, "vit-small": 22.1, "vit-base": 86.6, "vit-large": 304.4}
"""Millions, with the 1000-class head the published figures include."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_plain_sizes_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        encoder = build_encoder(name, fusion=())
    count = sum(p.numel() for p in encoder.parameters()) + 1000 * (encoder.config.dim + 1)
    assert round(count / 1e6, 1) == pytest.approx(PARAMETERS[name], abs=0.11)


def test_large_is_the_released_detector_backbone() -> None:
    large = CONFIGS["eva02-large"]
    assert (large.dim, large.depth, large.heads, large.hidden, large.head_dim) == (1024, 24, 16, 2730, 64)
    assert [block for block in range(24) if large.is_global(block)] == [3, 7, 11, 15, 19, 23]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 50}, "dim: 50"),
        ({"window": 10}, "window: 10 cells is not a multiple of 4"),
        ({"prefix": 1}, "prefix: a class token belongs to no window"),
        ({"key_bias": True}, "key_bias: with windows and RoPE"),
        ({"window": None}, "global_blocks: without a window"),
        ({"global_blocks": (12,)}, "global_blocks: .* below the depth of 12"),
        ({"fusion": (64,)}, r"fusion: \(64,\) is not"),
        ({"position": "middle"}, "position: 'middle' is not one of center, corner, mean"),
        ({"resampling": "nearest"}, "resampling: 'nearest' is not one of"),
        ({"padding": "none"}, "padding: 'none' is not one of exact, scaled, dropped"),
    ],
)
def test_senseless_configurations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configuration("eva02-tiny", **changes)


def test_the_spelling_of_files_before_0_2_is_read() -> None:
    assert configuration("vit-tiny", position="centre") == configuration("vit-tiny", position="center")


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"config: 'vit-huge' is not one of eva02-tiny, .*vit-large"):
        configuration("vit-huge")
