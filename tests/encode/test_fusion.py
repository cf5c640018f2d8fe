"""The fusion is inert until trained, counts what the paper counts, and reads the cells under the token."""

import torch
from torch import nn
from torch.nn import functional

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.config import configuration
from vgtok.encode.embed import FusionStage
from vgtok.encode.encoder import Encoder
from vgtok.encode.flops import parameters_of


def test_inert_at_initialisation_bit_for_bit() -> None:
    fused = small_encoder("eva02-tiny")
    plain = Encoder(
        configuration(
            "eva02-tiny", dim=48, heads=3, hidden=128, depth=4, table=(8, 8), window=8, global_blocks=(1, 3), fusion=()
        )
    ).eval()
    plain.load_state_dict({k: v for k, v in fused.state_dict().items() if "fusion" not in k})
    image = frame(192, 192)
    tokens = partition(image, 0.3)
    with torch.no_grad():
        assert torch.equal(fused([image], [tokens]).maps[0], plain([image], [tokens]).maps[0])


def test_gradients_reach_both_stages_and_then_what_lies_before_them() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(192, 192)
    tokens = partition(image, 0.3)
    assert {32, 64} <= set(tokens.sizes.tolist())
    assert encoder.embedding.fusion is not None
    optimiser = torch.optim.SGD(encoder.parameters(), lr=1e-3)
    for _ in range(2):
        optimiser.zero_grad()
        encoder([image], [tokens]).maps[0].square().mean().backward()
        optimiser.step()
    for name, parameter in encoder.embedding.fusion.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name


def test_parameters_are_the_papers() -> None:
    parts = parameters_of(configuration("eva02-large"))
    assert parts["fusion"] == 11_277_312
    assert round(parts["backbone"] / 1e6, 2) == 304.24
    single_pass = parameters_of(configuration("eva02-large", fusion=(32,)))
    assert single_pass["fusion"] == 11_277_312 - 4_195_328 - 1_049_600
    assert parameters_of(configuration("eva02-large", fusion=()))["total"] == parts["backbone"]


def test_stage_is_a_strided_convolution_applied_until_one_is_left() -> None:
    stage = FusionStage(6)
    nn.init.normal_(stage.out.weight)
    base = torch.randn(2, 4, 4, 6)
    # (D, 4 D) with the four neighbours outermost, to a (D, D, 2, 2) kernel
    kernel = stage.reduce.weight.view(6, 2, 2, 6).permute(0, 3, 1, 2)
    grid = base.permute(0, 3, 1, 2)
    for _ in range(2):
        grid = functional.conv2d(grid, kernel, stage.reduce.bias, stride=2)
    assert torch.allclose(stage(base), stage.out(grid[:, :, 0, 0]), atol=1e-5)
