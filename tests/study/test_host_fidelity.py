"""`study fidelity --model`: a checkpoint under timm's names becomes the model it is, and every setting is compared."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Dinov2Config, Dinov2Model

from tests.hosts.small_hosts import randomized
from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.study import host_fidelity
from vgtok.study.host_fidelity import BUDGETS, TOKENIZERS, compare_host, load_encoder
from vgtok.study.result import ImageJob


def model() -> Any:
    config = Dinov2Config(hidden_size=64, num_hidden_layers=2, num_attention_heads=1, image_size=56, patch_size=14)
    return randomized(Dinov2Model(config))


def timm_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of transformers' DINOv2 as timm calls them, written down apart from what reads them."""
    named = {
        "cls_token": state["embeddings.cls_token"],
        "pos_embed": state["embeddings.position_embeddings"],
        "patch_embed.proj.weight": state["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": state["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": state["layernorm.weight"],
        "norm.bias": state["layernorm.bias"],
    }
    for number in range(2):
        theirs, ours = f"encoder.layer.{number}", f"blocks.{number}"
        named[f"{ours}.ls1.gamma"] = state[f"{theirs}.layer_scale1.lambda1"]
        named[f"{ours}.ls2.gamma"] = state[f"{theirs}.layer_scale2.lambda1"]
        for kind in ("weight", "bias"):
            parts = [state[f"{theirs}.attention.{letter}_proj.{kind}"] for letter in "qkv"]
            named[f"{ours}.attn.qkv.{kind}"] = torch.cat(parts)
            named[f"{ours}.attn.proj.{kind}"] = state[f"{theirs}.attention.o_proj.{kind}"]
            for part in ("norm1", "norm2", "mlp.fc1", "mlp.fc2"):
                named[f"{ours}.{part}.{kind}"] = state[f"{theirs}.{part}.{kind}"]
    return {key: tensor.contiguous() for key, tensor in named.items()}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    path = tmp_path / "dinov2.safetensors"
    save_file(timm_names(model().state_dict()), path)
    return path


@torch.no_grad()
def test_a_checkpoint_is_the_model_it_came_from(weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected, images = model(), torch.randn(1, 3, 70, 56)
    assert torch.equal(load_encoder(str(weights))(images)[0], expected(images)[0])
    monkeypatch.setenv("VGTOK_WEIGHTS", str(weights.parent))
    assert torch.equal(load_encoder(weights.name)(images)[0], expected(images)[0])
    expected.save_pretrained(tmp_path / "folder")
    assert torch.equal(load_encoder(f"transformers:{tmp_path / 'folder'}")(images)[0], expected(images)[0])
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="is no DINOv2 with timm's names"):
        load_encoder(str(tmp_path / "other.safetensors"))
    with pytest.raises(InputError, match="is no folder with a model of transformers"):
        load_encoder(f"transformers:{tmp_path}")


def test_every_tokenizer_with_and_without_proportional_attention(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.setattr(host_fidelity, "_LONG", 16)
    monkeypatch.setattr(host_fidelity, "_SHORT", 10)
    scene = render_scene(seed=3, width=448, height=280)
    Image.fromarray(scene.pixels).save(tmp_path / "scene.png")
    result = compare_host([ImageJob("scenes", 0, tmp_path / "scene.png", scene.boxes, "native")], str(weights))
    assert len(result.rows) == 2 * (len(TOKENIZERS) * len(BUDGETS) - 1)
    assert all(-1 <= row["on_objects"] <= 1 and -1 <= row["elsewhere"] <= 1 for row in result.rows)
    gated = {row["budget"]: row["on_objects"] for row in result.rows if row["tokenizer"] == "Top-hat + gate"}
    assert gated[0.8] > gated[0.2]
