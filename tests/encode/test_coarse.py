"""The merged map of coarse tokens against the three maps it replaces, and the cache that keeps it."""

from typing import Any

import pytest
import torch

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.coarse import resampling_matrix
from vgtok.encode.plain import plain_modules


@pytest.mark.parametrize("span", [2, 4])
def test_resampling_as_a_matrix(span: int) -> None:
    assert resampling_matrix(span, "area", 16).sum() == pytest.approx(16)
    rows = resampling_matrix(span, "bicubic", 16)
    assert rows.shape == (16, 16 * span)
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(16))


@pytest.mark.parametrize(
    "changes",
    [{}, {"fusion": ()}, {"fusion": (32,), "resampling": "area"}, {"resampling": "bilinear", "patch": 14}],
)
@pytest.mark.parametrize("size", [(192, 256), (205, 330)])
def test_merged_equals_the_three_maps(changes: dict[str, Any], size: tuple[int, int]) -> None:
    encoder = small_encoder("vit-tiny", **changes)
    _give_fusion_weights(encoder)
    image = frame(*size)
    tokens = partition(image, 0.4)
    assert min(tokens.counts().values()) > 0
    if encoder.config.patch != 16:
        image = frame(*(-(-side * encoder.config.patch // 16) for side in size))
    with torch.inference_mode():
        found = encoder([image], [tokens]).maps[0]
        with plain_modules():
            expected = encoder([image], [tokens]).maps[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert not torch.equal(found, expected)


def test_changed_weights_are_merged_anew() -> None:
    encoder = small_encoder("vit-tiny")
    image = frame(192, 256)
    tokens = partition(image, 0.4)
    with torch.inference_mode():
        before = encoder([image], [tokens]).maps[0]
    _give_fusion_weights(encoder)
    with torch.inference_mode():
        after = encoder([image], [tokens]).maps[0]
        with plain_modules():
            expected = encoder([image], [tokens]).maps[0]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, expected, atol=1e-4, rtol=1e-4)


def _give_fusion_weights(encoder: torch.nn.Module) -> None:
    """Fusion starts from zero, which would hide it."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "fusion" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
