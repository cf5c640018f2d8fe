"""Wrapped models: their own output at a budget of 1, fewer tokens below it, unwrapped bit for bit."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

import vgtok
from tests.encode.small import frame
from vgtok.encode.encoder import build_encoder
from vgtok.encode.loading import load_weights
from vgtok.errors import BudgetError, InputError

SMALL: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}


def randomized(model: nn.Module) -> Any:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def vit(kind: Any = ViTModel) -> Any:
    return randomized(kind(ViTConfig(image_size=128, intermediate_size=96, **SMALL)))


def dinov2(kind: Any = Dinov2Model) -> Any:
    return randomized(kind(Dinov2Config(image_size=112, patch_size=14, **SMALL)))


def pixels(height: int, width: int, count: int = 2) -> torch.Tensor:
    return torch.stack([(frame(height, width, seed).float() / 255 - 0.5) / 0.5 for seed in range(count)])


MODELS = {
    "vit": (vit, pixels(128, 128)),
    "dinov2": (dinov2, pixels(112, 112)),
    "dinov2 other size": (dinov2, pixels(140, 70)),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_exact_at_all_tokens_same_shape_below_and_restored(name: str) -> None:
    build, images = MODELS[name]
    model = build()
    weights = copy.deepcopy(model.state_dict())
    expected = model(images)
    assert vgtok.wrap(model, budget=1.0) is model
    everything = model(pixel_values=images)
    assert type(everything) is type(expected)
    assert (everything.last_hidden_state - expected.last_hidden_state).abs().max() < 1e-4
    assert (everything.pooler_output - expected.pooler_output).abs().max() < 1e-4
    model.vgtok.budget = 0.4
    fewer = model(images)
    assert fewer.last_hidden_state.shape == expected.last_hidden_state.shape
    assert (fewer.last_hidden_state - expected.last_hidden_state).abs().max() > 1e-3
    assert isinstance(model(images, return_dict=False), tuple)
    assert vgtok.unwrap(model) is model
    assert torch.equal(model(images).last_hidden_state, expected.last_hidden_state)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())
    assert not hasattr(model, "vgtok")


@pytest.mark.parametrize(
    ("build", "head", "side"), [(vit, ViTForImageClassification, 128), (dinov2, Dinov2ForImageClassification, 112)]
)
@torch.no_grad()
def test_a_task_head_around_the_backbone_keeps_working(build: Any, head: Any, side: int) -> None:
    model, images = build(head), pixels(side, side)
    expected = model(images).logits
    vgtok.wrap(model, budget=1.0)
    assert (model(images).logits - expected).abs().max() < 1e-4
    vgtok.unwrap(model)
    assert torch.equal(model(images).logits, expected)


def test_gradients_reach_the_models_own_weights() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    model(pixels(128, 128)).last_hidden_state.sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None and not name.startswith("pooler")]
    assert without == []


@torch.no_grad()
def test_position_table_is_resized_on_request() -> None:
    model, images = vit(), pixels(96, 160)
    expected = model(images, interpolate_pos_encoding=True).last_hidden_state
    vgtok.wrap(model, budget=1.0)
    assert (model(images, interpolate_pos_encoding=True).last_hidden_state - expected).abs().max() < 1e-4


@torch.no_grad()
def test_copies_of_a_wrapped_model_are_their_own() -> None:
    model = vgtok.wrap(vit(), budget=0.4)
    twin: Any = copy.deepcopy(model)
    twin.vgtok.budget = 1.0
    assert model.vgtok.budget == 0.4  # type: ignore[union-attr]
    vgtok.unwrap(twin)
    assert hasattr(model, "vgtok")


def test_errors_say_what_to_do() -> None:
    with pytest.raises(InputError, match=r"model: Linear holds no backbone that can be wrapped: transformers.ViTModel"):
        vgtok.wrap(nn.Linear(2, 2))
    with pytest.raises(InputError, match="this Linear is not wrapped"):
        vgtok.unwrap(nn.Linear(2, 2))
    model: Any = vgtok.wrap(vit())
    with pytest.raises(InputError, match="images of 96 x 128 px, but this model takes 128 x 128; resize them"):
        model(pixels(96, 128))
    with pytest.raises(InputError, match="already wrapped"):
        vgtok.wrap(model)
    with pytest.raises(InputError, match="output_attentions: not available while wrapped"):
        model(pixels(128, 128), output_attentions=True)
    with pytest.raises(InputError, match="not whole patches of 14 px"):
        vgtok.wrap(dinov2())(pixels(112, 100))
    with pytest.raises(InputError, match=r"shape \(3, 128, 128\) is not \(B, 3, H, W\)"):
        model(pixels(128, 128)[0])
    with pytest.raises(BudgetError, match=r"budget: 0.01 is outside"):
        model.vgtok.budget = 0.01
    assert model.vgtok.budget == 0.4


@torch.no_grad()
def test_deit_weights_equal_transformers_vit(deit: Path, tmp_path: Path) -> None:
    encoder = build_encoder("vit-tiny").eval()
    load_weights(encoder, deit, "timm")
    oracle = ViTModel(
        ViTConfig(
            hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, layer_norm_eps=1e-6
        ),
        add_pooling_layer=False,
    ).eval()
    oracle.load_state_dict(as_transformers(load_file(deit)))
    image = frame(224, 224)
    tokens = vgtok.Tokenizer(budget=1.0, canvas="native")(image)
    features = encoder([image], [tokens])
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (encoder.config.mean, encoder.config.std))
    expected = oracle(((image - mean) / std)[None]).last_hidden_state
    measured = torch.cat([features.prefix[0], features.maps[0].flatten(1).T])
    assert (measured - expected[0]).abs().max() < 1e-4
    # ... and what transformers saves of them comes back through its own filter.
    oracle.save_pretrained(tmp_path)
    again = build_encoder("vit-tiny").eval()
    load_weights(again, tmp_path / "model.safetensors", "transformers")
    loaded = again.state_dict()
    assert all(torch.equal(t, loaded[key]) for key, t in encoder.state_dict().items() if "fusion" not in key)


def as_transformers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """DeiT's tensors under the names transformers' ViT has in memory."""
    named = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.position_embeddings": state["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    pairs = {
        "attn.proj": "attention.o_proj",
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "mlp.fc1": "mlp.fc1",
        "mlp.fc2": "mlp.fc2",
    }
    for number in range(12):
        for kind in ("weight", "bias"):
            for letter, part in zip("qkv", state[f"blocks.{number}.attn.qkv.{kind}"].chunk(3), strict=True):
                named[f"layers.{number}.attention.{letter}_proj.{kind}"] = part
            for theirs, ours in pairs.items():
                named[f"layers.{number}.{ours}.{kind}"] = state[f"blocks.{number}.{theirs}.{kind}"]
    return named


IMAGES = pixels(128, 128, count=1)


def counted(model: Any) -> list[int]:
    """The number of tensors of every renaming from here on."""
    calls: list[int] = []
    host = model.vgtok.host

    def rename(state: Any, config: Any) -> dict[str, Tensor]:
        calls.append(len(state))
        renamed: dict[str, Tensor] = host.filter(state, config)
        return renamed

    model.vgtok.host = replace(host, filter=rename)
    return calls


@torch.no_grad()
def seen(model: Any) -> Tensor:
    features: Tensor = model(IMAGES).last_hidden_state
    return features


def test_weights_are_renamed_once_for_many_calls_without_gradients() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    calls = counted(model)
    first = seen(model)
    with torch.inference_mode():
        model(IMAGES)
    model.vgtok.budget = 1.0  # type: ignore[union-attr]
    seen(model)
    model.vgtok.budget = 0.5  # type: ignore[union-attr]
    assert torch.equal(seen(model), first)
    assert len(calls) == 1
    # Frozen, a model without gradients may also run where they are on.
    model.requires_grad_(False)
    assert torch.equal(model(IMAGES).last_hidden_state, first)
    assert len(calls) == 1


def test_where_gradients_flow_nothing_is_kept() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    seen(model)
    calls = counted(model)
    for _ in range(2):
        model.zero_grad()
        model(IMAGES).last_hidden_state.sum().backward()
        assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("pooler"))
    assert len(calls) == 2
    assert model.vgtok._kept is None  # type: ignore[union-attr]


def loaded(model: nn.Module) -> None:
    model.load_state_dict(randomized(vit()).state_dict())


def assigned(model: nn.Module) -> None:
    model.load_state_dict(randomized(vit()).state_dict(), assign=True)


def stepped(model: nn.Module, **settings: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **settings)
    model(IMAGES).last_hidden_state.square().sum().backward()
    optimizer.step()


def stepped_at_once(model: nn.Module) -> None:
    stepped(model, fused=True)


def scaled_in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def scaled_behind_autograd(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.5)


def query_of(model: nn.Module) -> nn.Parameter:
    [parameter] = [p for name, p in model.named_parameters() if ".0." in name and name.endswith("q_proj.weight")]
    return parameter


def one_row_behind_autograd(model: nn.Module) -> None:
    query_of(model).data[7] = 3.0


def one_column_behind_autograd(model: nn.Module) -> None:
    query_of(model).data[:, 7] = 3.0


def data_replaced(model: nn.Module) -> None:
    query_of(model).data = torch.full_like(query_of(model), 0.1)


def parameter_replaced(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(0.5 * module.weight.detach())


def rounded(model: nn.Module) -> None:
    model.bfloat16().float()


def doubled(model: nn.Module) -> None:
    model.double()


CHANGES: tuple[Callable[[nn.Module], None], ...] = (
    loaded,
    assigned,
    stepped,
    stepped_at_once,
    scaled_in_place,
    scaled_behind_autograd,
    one_row_behind_autograd,
    one_column_behind_autograd,
    data_replaced,
    parameter_replaced,
    rounded,
    doubled,
)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_weights_is_seen_at_the_next_call(change: Callable[[nn.Module], None]) -> None:
    model: Any = vgtok.wrap(vit(), budget=0.5)
    before = seen(model)
    change(model)
    after = seen(model)
    model.vgtok._kept = None
    assert torch.equal(after, seen(model))
    assert not torch.equal(after.float(), before)


def test_a_copy_of_a_model_in_use_is_its_own() -> None:
    model: Any = vgtok.wrap(vit(), budget=0.5)
    before = seen(model)
    twin: Any = copy.deepcopy(model)
    assert twin.vgtok._kept is None
    assert twin.vgtok.module is twin
    assert torch.equal(seen(twin), before)
    scaled_in_place(twin)
    assert not torch.equal(seen(twin), before)
    assert torch.equal(seen(model), before)


def test_unwrapped_after_use_it_is_the_model_it_was() -> None:
    model = vit()
    expected, weights = seen(model), copy.deepcopy(model.state_dict())
    vgtok.wrap(model, budget=0.5)
    seen(model)
    vgtok.unwrap(model)
    assert torch.equal(seen(model), expected)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_what_inference_mode_made_is_of_use_outside_it() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    with torch.inference_mode():
        model(IMAGES)
    image = IMAGES.clone().requires_grad_()
    model.requires_grad_(False)
    model(image).last_hidden_state.sum().backward()
    assert image.grad is not None
    assert image.grad.abs().sum() > 0


def test_a_model_born_in_inference_mode_is_never_taken_for_unchanged() -> None:
    with torch.inference_mode():
        model: Any = vgtok.wrap(vit(), budget=0.5)
        before = model(IMAGES).last_hidden_state
        for parameter in model.parameters():
            parameter.mul_(0.5)
        assert not torch.equal(model(IMAGES).last_hidden_state, before)


def test_pixels_that_were_not_normalized_are_refused() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    raw = pixels(128, 128) * 127.5 + 127.5
    with pytest.raises(
        InputError, match=r"pixel_values: values up to 2[0-9.]+ are not a normalized image; scale pixels"
    ):
        model(raw)
    with pytest.raises(InputError, match="not a normalized image"):
        model(torch.full((1, 3, 128, 128), float("nan")))
    noise = 3 * torch.randn((2, 3, 128, 128), generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(model(noise).last_hidden_state).all()
