"""timm's ViT, DeiT, DINOv2, DINOv3 and EVA-02, in the environment `make test` builds for them: .venv-timm.

pytest does not collect this file by itself; there torchvision would break transformers.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

# timm's import needs two torchvision operators that a CPU torch lacks; declared, they are never called.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for _schema in (
    "nms(Tensor dets, Tensor scores, float threshold) -> Tensor",
    "qnms(Tensor a, Tensor b, float c) -> Tensor",
):
    _OPERATORS.define(_schema)

import timm  # noqa: E402

import vgtok.encode  # noqa: E402
from tests.encode.small import frame  # noqa: E402
from vgtok.encode.encoder import Encoder  # noqa: E402
from vgtok.encode.loading import check_state, from_timm  # noqa: E402
from vgtok.encode.modes import GridRoute, grid_rotations  # noqa: E402
from vgtok.errors import InputError  # noqa: E402

MODELS: dict[str, tuple[dict[str, Any], tuple[tuple[int, int], ...]]] = {
    "vit_tiny_patch16_224": ({"img_size": 128}, ((128, 128),)),
    "vit_tiny_patch16_224, any size": ({"img_size": 128, "dynamic_img_size": True}, ((96, 160), (160, 64))),
    "deit_tiny_distilled_patch16_224": ({"img_size": 128}, ((128, 128),)),
    "deit3_small_patch16_224": ({"img_size": 128, "dynamic_img_size": True}, ((128, 128), (96, 160))),
    "vit_small_patch14_dinov2": ({"img_size": 112, "dynamic_img_size": True}, ((112, 112), (140, 84))),
    "vit_small_patch14_reg4_dinov2": ({"img_size": 112}, ((112, 112),)),
    "vit_small_patch16_dinov3": ({"img_size": 128, "dynamic_img_size": True}, ((128, 128), (96, 160))),
    "eva02_tiny_patch14_224": ({"img_size": 112, "dynamic_img_size": True}, ((112, 112), (140, 84))),
    "eva02_base_patch14_224": ({"img_size": 112, "embed_dim": 96, "num_heads": 3}, ((112, 112),)),
}

EVERY = [(name, size) for name, (_, sizes) in MODELS.items() for size in sizes]


def build(name: str, **more: Any) -> Any:
    settings = {"num_classes": 5, "depth": 3, **MODELS[name][0], **more}
    model = timm.create_model(name.partition(",")[0], pretrained=False, **settings).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def pixels(height: int, width: int) -> Tensor:
    return torch.stack([(frame(height, width, seed).float() / 255 - 0.45) / 0.23 for seed in range(2)])


@pytest.mark.parametrize(("name", "size"), EVERY)
@torch.no_grad()
def test_exact_at_all_tokens_same_shapes_below_and_restored(name: str, size: tuple[int, int]) -> None:
    model, images = build(name), pixels(*size)
    weights = copy.deepcopy(model.state_dict())
    features, answer = model.forward_features(images), model(images)
    vgtok.wrap(model, budget=1.0)
    assert (model.forward_features(images) - features).abs().max() < 1e-4
    assert (model(images) - answer).abs().max() < 1e-4
    model.vgtok.budget = 0.4
    fewer = model.forward_features(images)
    assert fewer.shape == features.shape
    assert (fewer - features).abs().max() > 1e-3
    vgtok.unwrap(model)
    assert torch.equal(model.forward_features(images), features)
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter_that_had_one(name: str) -> None:
    model, images = build(name), pixels(*MODELS[name][1][0])

    def reached() -> set[str]:
        model.zero_grad()
        model(images).square().mean().backward()
        return {key for key, parameter in model.named_parameters() if parameter.grad is not None}

    expected = reached()
    vgtok.wrap(model, budget=0.4)
    assert reached() == expected
    plain = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    model.set_grad_checkpointing()
    model.train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    assert reached() == expected
    for key, parameter in model.named_parameters():
        if key in plain:
            assert (parameter.grad - plain[key]).abs().max() <= 1e-3 * plain[key].abs().max() + 1e-5


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch16_dinov3", "eva02_tiny_patch14_224"])
@torch.no_grad()
def test_a_compiled_model_gives_the_same(name: str) -> None:
    model, images = vgtok.wrap(build(name), budget=0.4), pixels(*MODELS[name][1][0])
    expected = model(images)
    torch.compiler.reset()
    assert (torch.compile(model, backend="aot_eager")(images) - expected).abs().max() < 1e-4


def test_errors_say_what_to_do() -> None:
    with pytest.raises(InputError, match="dynamic_img_size=True"):
        vgtok.wrap(build("vit_tiny_patch16_224")).forward_features(pixels(96, 128))
    with pytest.raises(InputError, match="not whole patches of 16 px"):
        vgtok.wrap(build("vit_tiny_patch16_224, any size")).forward_features(pixels(96, 160)[:, :, :90])
    with pytest.raises(InputError, match="forward_intermediates: not available while wrapped"):
        vgtok.wrap(build("vit_tiny_patch16_224")).forward_intermediates(pixels(128, 128))
    with pytest.raises(InputError, match="drops 50% of its patches"):
        vgtok.wrap(build("vit_tiny_patch16_224", patch_drop_rate=0.5))
    with pytest.raises(InputError, match=r"values up to 2[0-9.]+ are not a normalized image"):
        vgtok.wrap(build("vit_tiny_patch16_224"))(frame(128, 128)[None].float())


@pytest.mark.parametrize("mlp_norm", [False, True])
@torch.no_grad()
def test_our_eva_blocks_equal_timms(mlp_norm: bool) -> None:
    name = "eva02_base_patch14_224" if mlp_norm else "eva02_tiny_patch14_224"
    model = build(name, num_classes=0, dynamic_img_size=False)
    block = model.blocks[0]
    config = vgtok.encode.EncoderConfig(
        dim=model.embed_dim,
        depth=3,
        heads=block.attn.num_heads,
        hidden=block.mlp.fc2.in_features,
        mlp="swiglu",
        mlp_norm=mlp_norm,
        key_bias=False,
        rope=True,
        patch=14,
        table=(8, 8),
        norm_eps=block.norm1.eps,
        out_norm_eps=model.norm.eps if isinstance(model.norm, nn.LayerNorm) else None,
        fusion=(),
    )
    encoder = Encoder(config).eval()
    state = from_timm(model.state_dict(), config)
    check_state(state, encoder, name)
    encoder.load_state_dict(state)
    tokens = torch.randn(2, 65, config.dim, generator=torch.Generator().manual_seed(1))
    route = GridRoute(config, (8, 8), None, grid_rotations(config, (8, 8), tokens.device))
    rope = model.rope.get_embed()
    for mine, theirs in zip(encoder.blocks, model.blocks, strict=True):
        assert (mine(tokens, route) - theirs(tokens, rope=rope)).abs().max() < 1e-4
