"""Checkpoints of every source: names, shapes and values arrive; what does not fit is listed whole."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.encode.small import small_encoder
from vgtok.encode.config import configuration
from vgtok.encode.encoder import Encoder, build_encoder
from vgtok.encode.loading import WEIGHT_FILTERS, load_weights, read_state
from vgtok.errors import InputError

EVA = {"dim": 24, "heads": 2, "hidden": 64, "depth": 2, "table": (4, 4), "window": 8, "global_blocks": (1,)}


def codetr_state(encoder: Encoder) -> dict[str, torch.Tensor]:
    """An encoder's weights under the names a Co-DETR checkpoint has, with what must be left out."""
    config, state = encoder.config, encoder.state_dict()
    rows, columns = config.table
    foreign = {
        "backbone.pos_embed": torch.cat(
            [torch.full((1, config.dim), 9.0), state["embedding.table"].view(rows * columns, -1)]
        )[None],
        "backbone.patch_embed.proj.weight": state["embedding.projection.weight"].view(config.dim, 3, 16, 16),
        "backbone.patch_embed.proj.bias": state["embedding.projection.bias"],
        "backbone.out_norm.weight": state["out_norm.weight"],
        "backbone.out_norm.bias": state["out_norm.bias"],
        "backbone.rope_win.freqs_cos": torch.zeros(3),
        "query_head.label_embedding.weight": torch.zeros(3),
        "ema_backbone_pos_embed": torch.zeros(3),
    }
    for number in range(config.depth):
        ours, theirs = f"blocks.{number}", f"backbone.blocks.{number}"
        for letter, part in zip("qkv", state[f"{ours}.attention.qkv.weight"].chunk(3), strict=True):
            foreign[f"{theirs}.attn.{letter}_proj.weight"] = part
        foreign[f"{theirs}.attn.q_bias"] = state[f"{ours}.attention.query_bias"]
        foreign[f"{theirs}.attn.v_bias"] = state[f"{ours}.attention.value_bias"]
        foreign[f"{theirs}.attn.rope.freqs_cos"] = torch.zeros(3)
        for name, new in (
            ("attention.out", "attn.proj"),
            ("norm1", "norm1"),
            ("norm2", "norm2"),
            ("mlp.gate", "mlp.w1"),
            ("mlp.expand", "mlp.w2"),
            ("mlp.norm", "mlp.ffn_ln"),
            ("mlp.contract", "mlp.w3"),
        ):
            for kind in ("weight", "bias"):
                foreign[f"{theirs}.{new}.{kind}"] = state[f"{ours}.{name}.{kind}"]
    return {name: tensor.clone() for name, tensor in foreign.items()}


def test_codetr_backbone_arrives_whole(tmp_path: Path) -> None:
    original = small_encoder("eva02-large", **EVA)
    path = tmp_path / "codetr.pth"
    torch.save({"state_dict": codetr_state(original), "meta": {"epoch": 1}}, path)
    fresh = Encoder(original.config)
    load_weights(fresh, path, "codetr")
    for (name, mine), theirs in zip(fresh.state_dict().items(), original.state_dict().values(), strict=True):
        if "fusion" not in name:
            assert torch.equal(mine, theirs), name


def test_every_missing_extra_and_misshapen_tensor_is_named(tmp_path: Path) -> None:
    original = small_encoder("eva02-large", **EVA)
    state = codetr_state(original)
    del state["backbone.blocks.0.norm1.weight"], state["backbone.out_norm.bias"]
    state["backbone.blocks.7.norm1.weight"] = torch.zeros(24)
    state["backbone.blocks.1.norm2.bias"] = torch.zeros(5)
    path = tmp_path / "broken.safetensors"
    save_file(state, path)
    before = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    with pytest.raises(InputError) as error:
        load_weights(original, path, "codetr")
    message = str(error.value)
    assert "missing: blocks.0.norm1.weight, out_norm.bias;" in message
    assert "extra: blocks.7.norm1.weight;" in message
    assert "of another shape: blocks.1.norm2.bias (5,) instead of (24,)" in message
    assert str(path) in message
    assert all(torch.equal(tensor, before[name]) for name, tensor in original.state_dict().items())


def test_public_codetr_names_fit_the_large_encoder(shared_names: dict[str, tuple[int, ...]]) -> None:
    with torch.device("meta"):
        encoder = build_encoder("eva02-large", fusion=())
        state = WEIGHT_FILTERS["codetr"](
            {name: torch.empty(shape) for name, shape in shared_names.items()}, encoder.config
        )
    assert {name: t.shape for name, t in state.items()} == {name: t.shape for name, t in encoder.state_dict().items()}


@pytest.fixture(scope="session")
def shared_names() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the public release's backbone, written out from its description."""
    names: dict[str, tuple[int, ...]] = {
        "backbone.pos_embed": (1, 1025, 1024),
        "backbone.patch_embed.proj.weight": (1024, 3, 16, 16),
        "backbone.patch_embed.proj.bias": (1024,),
        "backbone.out_norm.weight": (1024,),
        "backbone.out_norm.bias": (1024,),
    }
    for number in range(24):
        block = f"backbone.blocks.{number}"
        for name, shape in {
            "norm1.weight": (1024,),
            "norm1.bias": (1024,),
            "attn.q_bias": (1024,),
            "attn.v_bias": (1024,),
            "attn.q_proj.weight": (1024, 1024),
            "attn.k_proj.weight": (1024, 1024),
            "attn.v_proj.weight": (1024, 1024),
            "attn.proj.weight": (1024, 1024),
            "attn.proj.bias": (1024,),
            "norm2.weight": (1024,),
            "norm2.bias": (1024,),
            "mlp.w1.weight": (2730, 1024),
            "mlp.w1.bias": (2730,),
            "mlp.w2.weight": (2730, 1024),
            "mlp.w2.bias": (2730,),
            "mlp.ffn_ln.weight": (2730,),
            "mlp.ffn_ln.bias": (2730,),
            "mlp.w3.weight": (1024, 2730),
            "mlp.w3.bias": (1024,),
        }.items():
            names[f"{block}.{name}"] = shape
    return names


def test_own_weights_round_trip_with_the_fusion(tmp_path: Path) -> None:
    original = small_encoder("vit-tiny")
    assert original.embedding.fusion is not None
    torch.nn.init.normal_(original.embedding.fusion.stages["2"].out.weight)
    save_file(original.state_dict(), tmp_path / "own.safetensors")
    fresh = Encoder(original.config)
    load_weights(fresh, tmp_path / "own.safetensors", "vgtok")
    loaded = fresh.state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in original.state_dict().items())


def test_deit_arrives_by_its_own_names(deit: Path) -> None:
    encoder = build_encoder("vit-tiny")
    load_weights(encoder, deit, "timm")
    assert encoder.embedding.prefix.shape == (1, 192)
    windowed = Encoder(configuration("vit-tiny").windowed())
    load_weights(windowed, deit, "timm")
    assert windowed.embedding.prefix.shape == (0, 192)
    assert torch.equal(windowed.embedding.table, encoder.embedding.table)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    encoder = small_encoder("vit-tiny")
    with pytest.raises(InputError, match=r"nowhere.pth: no such file"):
        load_weights(encoder, tmp_path / "nowhere.pth", "timm")
    with pytest.raises(InputError, match="source: 'mmdet' is not one of vgtok, codetr, timm, transformers"):
        load_weights(encoder, tmp_path / "nowhere.pth", "mmdet")
    (tmp_path / "text.safetensors").write_text("not tensors")
    with pytest.raises(InputError, match=r"text.safetensors: not a safetensors file"):
        load_weights(encoder, tmp_path / "text.safetensors", "timm")
    torch.save({"run": print}, tmp_path / "code.pth")
    with pytest.raises(InputError, match=r"code.pth: not a file of plain tensors"):
        load_weights(encoder, tmp_path / "code.pth", "timm")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with pytest.raises(InputError, match=r"empty.pth: holds no state dict"):
        load_weights(encoder, tmp_path / "empty.pth", "timm")


@pytest.mark.parametrize("name", ["none.pth", "none.safetensors"])
def test_an_empty_file_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=rf"{name}: not a "):
        read_state(tmp_path / name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    torch.save({"fine": torch.zeros(2), "broken": torch.tensor([0.0, value])}, tmp_path / "a.pth")
    with pytest.raises(InputError, match=r"a\.pth: broken holds NaN or infinite"):
        read_state(tmp_path / "a.pth")


def test_tensors_without_values_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2, 2).to_sparse()}, tmp_path / "a.pth")
    with pytest.raises(InputError, match="holds no state dict"):
        read_state(tmp_path / "a.pth")
