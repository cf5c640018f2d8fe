"""Against timm's EVA-02 and ViT, where timm imports: features, loading by its names, wrapping."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vgtok
from tests.encode.small import frame
from vgtok.encode.encoder import Encoder
from vgtok.encode.loading import check_state, from_timm
from vgtok.encode.modes import GridRoute, grid_rotations
from vgtok.hosts.adapters import find_host


@pytest.fixture(scope="module")
def timm() -> Any:
    # Its import needs two torchvision operators that a CPU torch lacks; declared, they are never called.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in (
        "nms(Tensor dets, Tensor scores, float threshold) -> Tensor",
        "qnms(Tensor a, Tensor b, float c) -> Tensor",
    ):
        try:
            library.define(schema)
        except RuntimeError:
            continue
    try:
        import timm as module
    except Exception as error:
        pytest.skip(f"timm does not import here: {error}")
    return module


MODELS: dict[str, dict[str, Any]] = {
    "eva02_tiny_patch14_224": {"img_size": 112},
    "eva02_base_patch14_224": {"img_size": 112, "embed_dim": 96, "num_heads": 3},
    "vit_tiny_patch16_224": {"img_size": 128},
    "vit_small_patch14_reg4_dinov2": {"img_size": 112},
}


def build(timm: Any, name: str) -> tuple[Any, Tensor]:
    settings = MODELS[name]
    model = timm.create_model(name, pretrained=False, num_classes=0, depth=3, **settings).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    side = settings["img_size"]
    return model, torch.stack([(frame(side, side, seed).float() / 255 - 0.45) / 0.23 for seed in range(2)])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_wrapped_equals_timm_at_all_tokens_and_comes_back(timm: Any, name: str) -> None:
    model, images = build(timm, name)
    expected = model.forward_features(images)
    vgtok.wrap(model, budget=1.0)
    assert (model.forward_features(images) - expected).abs().max() < 1e-4
    model.vgtok.budget = 0.4
    assert model(images).shape == (2, expected.shape[2])
    vgtok.unwrap(model)
    assert torch.equal(model.forward_features(images), expected)


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "eva02_base_patch14_224"])
@torch.no_grad()
def test_eva_blocks_equal_timms(timm: Any, name: str) -> None:
    model, _ = build(timm, name)
    module, host = find_host(model)
    encoder = Encoder(host.describe(module)).eval()
    state = from_timm(model.state_dict(), encoder.config)
    check_state(state, encoder, name)
    encoder.load_state_dict(state)
    tokens = torch.randn(2, 65, encoder.config.dim, generator=torch.Generator().manual_seed(1))
    route = GridRoute(encoder.config, (8, 8), None, grid_rotations(encoder.config, (8, 8), tokens.device))
    rope = model.rope.get_embed()
    for mine, theirs in zip(encoder.blocks, model.blocks, strict=True):
        assert (mine(tokens, route) - theirs(tokens, rope=rope)).abs().max() < 1e-4
