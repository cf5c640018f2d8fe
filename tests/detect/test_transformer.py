"""Deformable attention against transformers', forward and gradient, and chunked against whole."""

import pytest
import torch
from transformers import DeformableDetrConfig
from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrMultiscaleDeformableAttention

from vgtok.detect import transformer
from vgtok.detect.transformer import DeformableAttention

SHAPES = [(9, 7), (5, 4), (3, 2), (1, 1)]
CELLS = sum(rows * columns for rows, columns in SHAPES)


def _attention(seed: int = 0) -> DeformableAttention:
    torch.manual_seed(seed)
    attention = DeformableAttention(dim=32, heads=4, levels=4, points=3)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return attention


def _oracle(attention: DeformableAttention) -> DeformableDetrMultiscaleDeformableAttention:
    config = DeformableDetrConfig(d_model=32, num_feature_levels=4, disable_custom_kernels=True)
    oracle = DeformableDetrMultiscaleDeformableAttention(config, num_heads=4, n_points=3)
    oracle.load_state_dict(attention.state_dict())
    return oracle


@pytest.mark.parametrize("coordinates", [2, 4])
def test_equals_transformers_forward_and_gradient(coordinates: int) -> None:
    attention = _attention()
    oracle = _oracle(attention)
    # References also outside the image: what lies there reads as zero.
    query, memory = torch.randn(2, 11, 32), torch.randn(2, CELLS, 32)
    reference = torch.rand(2, 11, coordinates) * 1.4 - 0.2
    ours = [part.clone().requires_grad_() for part in (query, reference, memory)]
    theirs = [part.clone().requires_grad_() for part in (query, reference, memory)]
    out = attention(*ours, SHAPES)
    expected, _ = oracle(
        theirs[0],
        encoder_hidden_states=theirs[2],
        reference_points=theirs[1][:, :, None].expand(-1, -1, 4, -1),
        spatial_shapes=torch.tensor(SHAPES),
        spatial_shapes_list=SHAPES,
        level_start_index=torch.tensor([0, 63, 83, 89]),
    )
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    direction = torch.randn_like(out)
    parts = (*ours, *attention.parameters()), (*theirs, *oracle.parameters())
    gradients = [torch.autograd.grad((o * direction).sum(), p) for o, p in zip((out, expected), parts, strict=True)]
    for mine, other in zip(*gradients, strict=True):
        # Gradients of places run into the hundreds: compare as shares of the largest.
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(mine / scale, other / scale, atol=1e-5, rtol=1e-5)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = _attention()
    query, reference, memory = torch.randn(1, 50, 32), torch.rand(1, 50, 4), torch.randn(1, CELLS, 32)
    whole = attention(query, reference, memory, SHAPES)
    monkeypatch.setattr(transformer, "QUERIES_AT_ONCE", 7)
    torch.testing.assert_close(attention(query, reference, memory, SHAPES), whole, atol=1e-6, rtol=1e-6)


def test_heads_start_in_directions_of_their_own() -> None:
    attention = DeformableAttention(dim=16, heads=8, levels=2, points=4)
    offsets = torch.unflatten(attention.sampling_offsets.bias, 0, (8, 2, 4, 2))
    assert len(torch.unique(offsets[:, 0, 0].round(decimals=4), dim=0)) == 8
    torch.testing.assert_close(offsets[:, :, 3], 4 * offsets[:, :, 0])
    torch.testing.assert_close(offsets.abs().amax(dim=-1)[0, 0], torch.arange(1.0, 5.0))
