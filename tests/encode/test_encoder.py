"""Packed equals dense at 100% of tokens, a batch equals its images, the control equals masked attention."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.devices import DEVICES
from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.embed import lay_out
from vgtok.encode.encoder import Encoder, PackedRoutes, unpack
from vgtok.encode.modes import encode_control, encode_dense
from vgtok.encode.packing import pack
from vgtok.errors import InputError
from vgtok.tokenize.split import Nodes
from vgtok.tokenize.tokens import tokens_from_splits

GRIDS = {"divides": (128, 256), "does not": (192, 320), "ragged pixels": (150, 333)}


@pytest.mark.parametrize("size", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("family", ["eva02-tiny", "eva02-base", "vit-tiny"])
@pytest.mark.parametrize("device", DEVICES)
def test_all_tokens_packed_equal_dense(device: str, family: str, size: tuple[int, int]) -> None:
    encoder = small_encoder(family).to(device)
    image = frame(*size).to(device)
    with torch.no_grad():
        packed = encoder([image], [partition(image, 1.0)])
        dense = encode_dense(encoder, image[None])
    assert (packed.maps[0] - dense.maps[0]).abs().max() < 1e-4
    assert dense.maps[0].std() > 0.5
    assert packed.prefix.shape == dense.prefix.shape == (1, encoder.config.prefix, 48)
    assert torch.allclose(packed.prefix, dense.prefix, atol=1e-4)


@pytest.mark.parametrize("size", [(33, 81), (150, 333), (128, 240)])
def test_all_tokens_of_a_padded_grid_packed_equal_dense(size: tuple[int, int]) -> None:
    encoder = small_encoder("eva02-base", grid_multiple=2)
    image = frame(*size)
    with torch.no_grad():
        packed = encoder([image], [partition(image, 1.0)]).maps[0]
        dense = encode_dense(encoder, image[None]).maps[0]
        # Zeros after normalization, which is what a padded image holds.
        wide = torch.zeros(1, 3, -(-size[0] // 32) * 32, -(-size[1] // 32) * 32)
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (encoder.config.mean, encoder.config.std))
        wide[0, :, : size[0], : size[1]] = (image - mean) / std
        whole = encode_dense(encoder, wide).maps[0]
    assert packed.shape[1:] == (-(-size[0] // 32) * 2, -(-size[1] // 32) * 2)
    assert torch.allclose(dense, whole, atol=1e-4)
    assert (packed - dense).abs().max() < 1e-4


def test_windowed_plain_vit_reproduces_its_padding() -> None:
    encoder = small_encoder("vit-tiny", window=8, global_blocks=(3,), prefix=0, layer_scale=True)
    image = frame(160, 160)
    with torch.no_grad():
        packed = encoder([image], [partition(image, 1.0)]).maps[0]
        dense = encode_dense(encoder, image[None]).maps[0]
        dropped = Encoder(replace(encoder.config, padding="dropped")).eval()
        dropped.load_state_dict(encoder.state_dict())
        without = dropped([image], [partition(image, 1.0)]).maps[0]
    assert (packed - dense).abs().max() < 1e-4
    assert (without - dense).abs().max() > 1e-2


@pytest.mark.parametrize("family", ["eva02-tiny", "vit-tiny"])
def test_batch_of_different_images_equals_each_alone(family: str) -> None:
    encoder = small_encoder(family)
    images = [frame(128, 256, 1), frame(200, 120, 2), frame(64, 64, 3)]
    tokens = [partition(image, budget) for image, budget in zip(images, (0.4, 0.7, 1.0), strict=True)]
    with torch.no_grad():
        together = encoder(images, tokens)
        for number, image in enumerate(images):
            alone = encoder([image], [tokens[number]])
            assert (together.maps[number] - alone.maps[0]).abs().max() < 1e-4
            assert torch.allclose(together.prefix[number], alone.prefix[0], atol=1e-4)


def test_control_equals_masked_attention_on_the_scattered_input() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(192, 256)
    tokens, everything = partition(image, 0.4), partition(image, 1.0)
    with torch.no_grad():
        control = encode_control(encoder, [image], [tokens]).maps[0]
        # The same scattered cells as a packed sequence of every cell, through the masked reference.
        coarse, fine = pack([tokens], encoder.config), pack([everything], encoder.config)
        at_coarse, at_fine = (lay_out(p, encoder.config, torch.device("cpu")) for p in (coarse, fine))
        cells = encoder.embedding([image], coarse, at_coarse)[at_coarse.cells]
        sequence = torch.empty_like(cells)
        sequence[at_fine.cells] = cells
        routes = PackedRoutes(fine, at_fine, encoder.config, "masked")
        for number, block in enumerate(encoder.blocks):
            sequence = block(sequence, routes.of(number))
        reference = unpack(encoder.out_norm(sequence), fine, at_fine).maps[0]
    assert (control - reference).abs().max() < 1e-4


@pytest.mark.parametrize("changes", [{}, {"window": None, "global_blocks": ()}, {"proportional": True}])
@pytest.mark.parametrize("family", ["eva02-tiny", "vit-tiny"])
def test_spare_rows_change_nothing(family: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = small_encoder(family, **changes)
    image = frame(128, 256)
    tokens = partition(image, 0.4)
    with torch.no_grad():
        found = {}
        for spare in (0, 5):
            monkeypatch.setattr("vgtok.encode.encoder.spare_rows", lambda _, spare=spare: spare)
            found[spare] = encoder([image], [tokens])
    torch.testing.assert_close(found[5].maps[0], found[0].maps[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[5].prefix, found[0].prefix, atol=1e-5, rtol=1e-5)


def test_coarse_tokens_fill_the_cells_they_span() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(128, 128)
    tokens = partition(image, 0.3)
    with torch.no_grad():
        grid = encoder([image], [tokens]).maps[0]
    for x, y, size in zip(tokens.x // 16, tokens.y // 16, tokens.sizes // 16, strict=True):
        region = grid[:, y : y + size, x : x + size]
        assert torch.equal(region, region[:, :1, :1].expand_as(region))


def test_padded_canvas_and_float_pixels_give_the_same_map() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(150, 100)
    tokens = partition(image, 0.5)
    canvas = torch.nn.functional.pad(image, (0, 28, 0, 42))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (encoder.config.mean, encoder.config.std))
    with torch.no_grad():
        expected = encoder([image], [tokens]).maps[0]
        assert torch.equal(encoder([canvas], [tokens]).maps[0], expected)
        assert torch.allclose(encoder([(image - mean) / std], [tokens]).maps[0], expected, atol=1e-5)


def test_token_at_a_ragged_edge_reads_only_what_exists() -> None:
    # 24 px wide: the 64-px root reaches far beyond; changing nothing inside must change nothing.
    encoder = small_encoder("vit-tiny")
    image = frame(64, 40)
    whole = tokens_from_splits(
        Nodes(np.zeros((2, 2), bool), np.zeros((1, 1), bool)), partition(image, 1).extent, (64, 40)
    )
    with torch.no_grad():
        features = encoder([image], [whole])
    assert features.maps[0].shape == (48, 4, 3)
    assert torch.isfinite(features.maps[0]).all()


OPTIONS: list[dict[str, Any]] = [
    {"position": "corner"},
    {"position": "mean"},
    {"resampling": "bilinear"},
    {"resampling": "area"},
    {"proportional": False},
    {"padding": "scaled"},
    {"padding": "dropped"},
]


@pytest.mark.parametrize("change", OPTIONS, ids=lambda change: "-".join(map(str, *change.items())))
def test_options_change_coarse_partitions_only(change: dict[str, Any]) -> None:
    encoder = small_encoder("eva02-tiny")
    changed = Encoder(replace(encoder.config, **change)).eval()
    changed.load_state_dict(encoder.state_dict())
    # (128, 128) divides into windows of 8 cells, (128, 160) does not.
    image = frame(128, 160 if "padding" in change else 128)
    with torch.no_grad():
        for budget, differs in ((1.0, change.get("padding") == "dropped"), (0.3, True)):
            tokens = partition(image, budget)
            gap = (encoder([image], [tokens]).maps[0] - changed([image], [tokens]).maps[0]).abs().max()
            assert (gap > 1e-4) == differs


def test_drop_path_acts_per_image_and_only_while_training() -> None:
    encoder = small_encoder("eva02-tiny", drop_path=0.9).train()
    image = frame(64, 64)
    tokens = partition(image, 0.5)
    torch.manual_seed(0)
    maps = torch.stack(encoder([image] * 6, [tokens] * 6).maps)
    assert len(torch.unique(maps.detach().mean(dim=(1, 2, 3)).round(decimals=4))) > 1
    dense = torch.stack(encode_dense(encoder, image.expand(6, -1, -1, -1)).maps)
    assert torch.isfinite(dense).all()
    encoder.eval()
    assert torch.equal(encoder([image], [tokens]).maps[0], encoder([image], [tokens]).maps[0])


def test_gradients_reach_every_weight_but_the_fusion_behind_its_zero() -> None:
    encoder = small_encoder("eva02-base")
    image = frame(192, 192)
    encoder([image], [partition(image, 0.3)]).maps[0].square().sum().backward()
    for name, parameter in encoder.named_parameters():
        if parameter.numel() == 0:
            continue
        assert parameter.grad is not None, name
        inert = "fusion" in name and ".out." not in name
        assert bool(parameter.grad.abs().sum() > 0) is not inert, name


@pytest.mark.parametrize("family", ["eva02-base", "vit-tiny"])
def test_half_precision_stays_near_full(family: str) -> None:
    encoder = small_encoder(family)
    image = frame(128, 192)
    tokens = partition(image, 0.4)
    with torch.no_grad():
        full = encoder([image], [tokens]).maps[0]
        with torch.autocast("cpu", torch.bfloat16):
            mixed = encoder([image], [tokens]).maps[0]
        half = encoder.bfloat16()([image], [tokens]).maps[0]
    assert mixed.dtype == torch.float32
    assert half.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(mixed, full, dim=0).min() > 0.98
    assert torch.nn.functional.cosine_similarity(half.float(), full, dim=0).min() > 0.9


def test_gradients_of_the_gated_mlp_survive_its_in_place_arithmetic() -> None:
    mlp = small_encoder("eva02-base").blocks[0].mlp
    x = torch.randn(5, 48, requires_grad=True)
    plain = mlp.contract(mlp.norm(torch.nn.functional.silu(mlp.gate(x)) * mlp.expand(x)))
    inputs = [x, *mlp.parameters()]
    for expected, measured in zip(
        torch.autograd.grad(plain.square().sum(), inputs),
        torch.autograd.grad(mlp(x).square().sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(expected, measured, atol=1e-5)


def test_images_and_tokens_that_do_not_belong_together() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(128, 128)
    tokens = partition(image, 0.5)
    with pytest.raises(
        InputError, match=r"image 0: shape \(3, 64, 128\) does not belong to its tokens.*\(3, 128, 128\)"
    ):
        encoder([image[:, :64]], [tokens])
    with pytest.raises(InputError, match="1 partitions for 2 images"):
        encoder([image, image], [tokens])
    with pytest.raises(InputError, match="the control takes one size at a time"):
        encode_control(encoder, [image, frame(64, 64)], [tokens, partition(frame(64, 64), 1.0)])
