"""Wrapping itself: any tokenizer, training, precisions, copies, and the errors; families are in test_families.py."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Dinov2ForImageClassification, ViTConfig, ViTForImageClassification, ViTModel

import vgtok
from tests.encode.small import frame
from tests.hosts.outputs import tensors
from tests.hosts.small_hosts import CASES, lw_detr, owl, pixels, randomized, rf_detr, yolos
from vgtok.encode.encoder import build_encoder
from vgtok.encode.loading import load_weights
from vgtok.errors import BudgetError, InputError
from vgtok.hosts import find_host
from vgtok.hosts.plan import make_plan
from vgtok.tokenize import PRESETS

SMALL: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}


def vit(kind: Any = ViTModel, **settings: Any) -> Any:
    return randomized(kind(ViTConfig(image_size=128, intermediate_size=96, **SMALL, **settings)))


def dinov2(kind: Any = transformers.Dinov2Model, **settings: Any) -> Any:
    return randomized(kind(transformers.Dinov2Config(image_size=112, patch_size=14, **SMALL, **settings)))


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


@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_any_tokenizer_at_run_time_and_images_that_keep_different_numbers(name: str) -> None:
    images = torch.cat([pixels(160, 224, 2), torch.zeros(1, 3, 160, 224)])
    model: Any = vgtok.wrap(dinov2(), tokenizer=vgtok.Tokenizer(percentile=60.0, **PRESETS[name]))
    assert model.vgtok.budget is None
    together = model(images).last_hidden_state
    counts = {len(partition) for partition in model.vgtok.partitions(images)}
    assert len(counts) > 1 or name == "single-pass"
    # Each image alone gives what it gave in the batch.
    alone = torch.cat([model(image[None]).last_hidden_state for image in images])
    assert (together - alone).abs().max() < 1e-4
    model.vgtok.budget = 0.5
    assert model.vgtok.tokenizer.scorer == PRESETS[name]["scorer"]
    model.vgtok.tokenizer = vgtok.Tokenizer(budget=1.0)
    whole = model(images).last_hidden_state
    assert (whole - vgtok.unwrap(model)(images).last_hidden_state).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["dinov2", "dinov3", "yolos", "lw-detr", "rf-detr"])
def test_gradient_checkpointing_of_two_batches_before_one_backward(name: str) -> None:
    # Two partitions are alive at once; each layer must be run again on its own.
    model: Any = randomized(CASES[name].build())
    # The detectors around windowed backbones support no checkpointing, the backbones do.
    model = vgtok.wrap(find_host(model)[0] if name.endswith("detr") else model, budget=0.4).train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    model.config.pos_embed_rescale = None
    batches = pixels(*CASES[name].sizes[0]), pixels(*CASES[name].sizes[0]).flip(0, 2, 3)

    def gradients(checkpointed: bool) -> dict[str, Tensor]:
        if checkpointed:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        outputs = [model(pixel_values=batch) for batch in batches]
        last = [tensor for output in outputs for _, tensor in [*tensors(output)][-1:]]
        torch.stack([tensor.square().mean() for tensor in last]).sum().backward()
        return {key: p.grad for key, p in model.named_parameters() if p.grad is not None}

    plain, checkpointed = gradients(False), gradients(True)
    assert plain.keys() == checkpointed.keys()
    for key, gradient in plain.items():
        assert (gradient - checkpointed[key]).abs().max() <= 1e-3 * gradient.abs().max() + 1e-6, key


@pytest.mark.parametrize("name", ["vit", "dinov3", "rf-detr", "owlv2"])
@torch.no_grad()
def test_half_precision_and_autocast(name: str) -> None:
    case = CASES[name]
    model, inputs = vgtok.wrap(randomized(case.build()), budget=0.5), case.inputs(case.sizes[0])
    expected = model(**inputs)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(model(**inputs)[0].float()).all()
    model.bfloat16()
    inputs["pixel_values"] = inputs["pixel_values"].bfloat16()
    halved = model(**inputs)[0]
    assert halved.shape == expected.shape
    assert torch.isfinite(halved.float()).all()
    assert halved.dtype == vgtok.unwrap(model)(**inputs)[0].dtype


def test_training_through_it_lowers_a_loss_and_drops_paths() -> None:
    torch.manual_seed(0)
    model: Any = vgtok.wrap(dinov2(drop_path_rate=0.2, hidden_dropout_prob=0.1), budget=0.4).train()
    images, target = pixels(112, 112), 1.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = (model(images).pooler_output.mean(dim=1) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-3:]) < 0.5 * losses[0]
    assert not torch.equal(model(images).pooler_output, model(images).pooler_output)


@torch.no_grad()
def test_coarse_keys_count_as_the_cells_they_cover() -> None:
    images = torch.zeros(1, 3, 128, 128)
    model = vit(num_channels=3)
    # Without positions all patches of a gray image are one vector, so the class token sees what it sees densely.
    model.embeddings.position_embeddings.zero_()
    expected = model(images).pooler_output
    assert (vgtok.wrap(model, 0.4, proportional=True)(images).pooler_output - expected).abs().max() < 1e-5
    vgtok.unwrap(model)
    assert (vgtok.wrap(model, 0.4)(images).pooler_output - expected).abs().max() > 1e-5
    with pytest.raises(InputError, match="proportional: the layers of YolosModel take no attention mask"):
        vgtok.wrap(yolos(), proportional=True)


@torch.no_grad()
def test_owl_predicts_once_per_token() -> None:
    model: Any = vgtok.wrap(randomized(owl("Owlv2")), budget=0.4)
    inputs = {"pixel_values": pixels(128, 128), "input_ids": torch.tensor([[3, 4, 49]] * 2)}
    output = model(**inputs)
    tokens = [len(partition) for partition in model.vgtok.partitions(inputs["pixel_values"])]
    lowest = torch.finfo(torch.float32).min
    possible = output.logits[..., 0] > lowest
    assert possible.sum(dim=1).tolist() == tokens
    assert torch.equal(possible, output.objectness_logits > lowest)
    guided = model.image_guided_detection(inputs["pixel_values"], inputs["pixel_values"])
    assert (guided.logits[..., 0] > lowest).sum(dim=1).tolist() == tokens
    vgtok.unwrap(model)
    assert (model(**inputs).logits > lowest).all()


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 99)
)
@settings(max_examples=40, deadline=None)
def test_a_plan_gives_every_cell_its_token_and_crosses_no_window(
    rows: int, columns: int, down: int, across: int, specials: int, seed: int
) -> None:
    rows, columns = rows * down, columns * across
    noise = np.random.default_rng(seed).integers(0, 256, (rows * 16, columns * 16, 3), dtype=np.uint8)
    tokens = vgtok.Tokenizer(budget=0.4, canvas="native")(noise)
    plan = make_plan([tokens, tokens], (specials, 1), (rows // down, columns // across), torch.device("cpu"))
    # A sequence that holds its own slots comes back with each cell's token.
    slots = torch.arange(len(plan)).float()[:, None]
    found = plan.maps(slots)[0, :, :, 0].long()
    for slot in found.unique():
        inside = (found == slot).nonzero()
        assert len({(int(row) // (rows // down), int(column) // (columns // across)) for row, column in inside}) == 1
    assert sorted(plan.spread(slots).flatten().unique().tolist()) == list(range(len(plan)))
    # Groups bring every vector back to its place, and each runs inside one window or one image.
    for groups, count in ((plan.windows, 2 * down * across), (plan.images, 2)):
        assert torch.equal(groups.each(slots, lambda batch, own: batch), slots)
        assert sum(len(batch) for batch in groups.batches) == count
    average = plan.average(torch.ones(rows * columns, 3))
    assert torch.allclose(average, torch.ones_like(average))


@torch.no_grad()
def test_copies_of_a_wrapped_model_are_their_own() -> None:
    model: Any = vgtok.wrap(vit(), budget=0.4)
    twin: Any = copy.deepcopy(model)
    twin.vgtok.budget = 1.0
    assert model.vgtok.budget == 0.4
    assert twin.vgtok.module is twin
    images, before = pixels(128, 128), model(pixels(128, 128))[0]
    for parameter in twin.parameters():
        parameter.mul_(0.5)
    assert not torch.equal(twin(images)[0], before)
    assert torch.equal(model(images)[0], before)
    vgtok.unwrap(twin)
    assert hasattr(model, "vgtok")


def test_errors_say_what_to_do() -> None:
    with pytest.raises(InputError, match=r"model: Linear holds no backbone that can be wrapped; families: CLIP"):
        vgtok.wrap(nn.Linear(2, 2))
    with pytest.raises(InputError, match="this Linear is not wrapped"):
        vgtok.unwrap(nn.Linear(2, 2))
    with pytest.raises(InputError, match="give either budget= or tokenizer="):
        vgtok.wrap(vit(), 0.4, vgtok.Tokenizer(0.5))
    model: Any = vgtok.wrap(vit())
    with pytest.raises(InputError, match="images of 96 x 128 px, but this model takes 128 x 128; resize them"):
        model(pixels(96, 128))
    with pytest.raises(InputError, match="already wrapped"):
        vgtok.wrap(model)
    with pytest.raises(InputError, match="output_attentions: attention is between tokens while wrapped"):
        model(pixels(128, 128), output_attentions=True)
    with pytest.raises(InputError, match="bool_masked_pos: not available while wrapped"):
        model(pixels(128, 128), torch.ones(2, 64, dtype=torch.bool))
    with pytest.raises(InputError, match="output_hidden_states: give True"):
        model(pixels(128, 128), output_hidden_states=[1])
    with pytest.raises(InputError, match="images of 12 x 100 px hold no patch of 14 px"):
        vgtok.wrap(dinov2())(pixels(112, 112)[:, :, :12, :100])
    with pytest.raises(InputError, match=r"shape \(3, 128, 128\) is not \(B, 3, H, W\)"):
        model(pixels(128, 128)[0])
    with pytest.raises(InputError, match="not a normalized image"):
        model(torch.full((1, 3, 128, 128), float("nan")))
    with pytest.raises(BudgetError, match=r"budget: 0.01 is outside"):
        model.vgtok.budget = 0.01
    assert model.vgtok.budget == 0.4
    with pytest.raises(InputError, match=r"tokenizer: a float is not a vgtok\.Tokenizer"):
        model.vgtok.tokenizer = 0.5
    small = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 32}
    for relative in (
        transformers.SamVisionModel(transformers.SamVisionConfig(**small, output_channels=8)),
        transformers.VitDetBackbone(transformers.VitDetConfig(**small)),
    ):
        with pytest.raises(InputError, match="cannot be wrapped: its attention adds a position for every pair of rows"):
            vgtok.wrap(relative)
    with pytest.raises(InputError, match="ViT-MAE hides 75% of the patches"):
        vgtok.wrap(transformers.ViTMAEModel(transformers.ViTMAEConfig(image_size=128, **SMALL)))
    with pytest.raises(
        InputError, match=r"112 x 168 px are not square, and RF-DETR in transformers cuts wrong windows"
    ):
        vgtok.wrap(rf_detr())(pixels(112, 168))
    with pytest.raises(
        InputError, match="126 x 126 px do not make 2 x 2 equal windows of 14-px patches; use multiples"
    ):
        vgtok.wrap(rf_detr())(pixels(126, 126))
    with pytest.raises(InputError, match="112 x 128 px do not make 2 x 2 equal windows of 16-px patches"):
        vgtok.wrap(lw_detr())(pixels(112, 128))


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
