"""Load weights strictly: a filter per source renames its tensors, and every tensor must fit."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vgtok.encode.config import EncoderConfig
from vgtok.encode.encoder import Encoder
from vgtok.errors import InputError
from vgtok.files import is_there

State = Mapping[str, Tensor]
Filter = Callable[[State, EncoderConfig], dict[str, Tensor]]


# The names each source gives to its tensors.

_BIASES = [
    (r"(blocks\.\d+)\.attn\.q_bias", r"\1.attention.query_bias"),
    (r"(blocks\.\d+)\.attn\.v_bias", r"\1.attention.value_bias"),
    (r"(blocks\.\d+)\.attn\.proj\.", r"\1.attention.out."),
]

_TIMM_EMBEDDING = [
    (r"^patch_embed\.proj\.", "embedding.projection."),
    (r"^(out_)?norm\.", "out_norm."),
]


def from_vgtok(state: State, config: EncoderConfig) -> dict[str, Tensor]:
    """Keep the names of this library."""
    return dict(state)


def from_codetr(state: State, config: EncoderConfig) -> dict[str, Tensor]:
    """Rename `backbone.*` of a Co-DETR checkpoint; its plain keys hold the averaged weights, so skip `ema_*`."""
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    names = [
        (r"^rope_win\..*|^blocks\.\d+\.attn\.rope\..*", ""),
        (r"(blocks\.\d+)\.attn\.(q|k|v)_proj\.", r"\1.attention.\2."),
        (r"(blocks\.\d+\.mlp)\.w1\.", r"\1.gate."),
        (r"(blocks\.\d+\.mlp)\.w2\.", r"\1.expand."),
        (r"(blocks\.\d+\.mlp)\.ffn_ln\.", r"\1.norm."),
        (r"(blocks\.\d+\.mlp)\.w3\.", r"\1.contract."),
        *_BIASES,
        *_TIMM_EMBEDDING,
    ]
    return _assembled(_renamed(backbone, names), config)


def from_timm(state: State, config: EncoderConfig) -> dict[str, Tensor]:
    """Rename the weights of a timm ViT, DeiT or EVA-02."""
    names = [
        (r"^(head|head_dist|fc_norm|pre_logits|rope)\..*", ""),
        (r"(blocks\.\d+)\.attn\.qkv\.", r"\1.attention.qkv."),
        (r"blocks\.\d+\.attn\.k_bias", ""),
        (r"(blocks\.\d+)\.attn\.(q|k|v)_proj\.weight", r"\1.attention.\2.weight"),
        (r"(blocks\.\d+)\.attn\.q_proj\.bias", r"\1.attention.query_bias"),
        (r"(blocks\.\d+)\.attn\.v_proj\.bias", r"\1.attention.value_bias"),
        (r"(blocks\.\d+)\.(ls|gamma_)(1|2)(\.gamma)?$", r"\1.scale\3"),
        (r"(blocks\.\d+\.mlp)\.fc1_g\.", r"\1.gate."),
        (r"(blocks\.\d+\.mlp)\.fc1(_x)?\.", r"\1.expand."),
        (r"(blocks\.\d+\.mlp)\.fc2\.", r"\1.contract."),
        *_BIASES,
        *_TIMM_EMBEDDING,
    ]
    return _assembled(_renamed(state, names), config)


def from_transformers(state: State, config: EncoderConfig) -> dict[str, Tensor]:
    """Rename the weights of a transformers ViT or DINOv2, in memory or from a file, with or without a task head."""
    names = [
        (r"^(vit|dinov2)\.", ""),
        (r"^(classifier|pooler)\..*|^embeddings\.mask_token", ""),
        (r"^embeddings\.cls_token", "cls_token"),
        (r"^embeddings\.position_embeddings", "pos_embed"),
        (r"^embeddings\.patch_embeddings\.projection\.", "embedding.projection."),
        (r"^(encoder\.layer|layers)\.", "blocks."),
        (r"(blocks\.\d+)\.attention\.attention\.(q)uery\.", r"\1.attention.\2."),
        (r"(blocks\.\d+)\.attention\.attention\.(k)ey\.", r"\1.attention.\2."),
        (r"(blocks\.\d+)\.attention\.attention\.(v)alue\.", r"\1.attention.\2."),
        (r"(blocks\.\d+)\.attention\.(q|k|v)_proj\.", r"\1.attention.\2."),
        (r"(blocks\.\d+)\.attention\.(output\.dense|o_proj)\.", r"\1.attention.out."),
        (r"(blocks\.\d+)\.(intermediate\.dense|mlp\.fc1)\.", r"\1.mlp.expand."),
        (r"(blocks\.\d+)\.(output\.dense|mlp\.fc2)\.", r"\1.mlp.contract."),
        (r"(blocks\.\d+)\.layernorm_before\.", r"\1.norm1."),
        (r"(blocks\.\d+)\.layernorm_after\.", r"\1.norm2."),
        (r"(blocks\.\d+)\.layer_scale(1|2)\.lambda1", r"\1.scale\2"),
        (r"^layernorm\.", "out_norm."),
    ]
    return _assembled(_renamed(state, names), config)


WEIGHT_FILTERS: dict[str, Filter] = {
    "vgtok": from_vgtok,
    "codetr": from_codetr,
    "timm": from_timm,
    "transformers": from_transformers,
}
"""Every source of weights by name."""


def _renamed(state: State, names: list[tuple[str, str]]) -> dict[str, Tensor]:
    """Apply every (pattern, new name) in turn; drop tensors whose name becomes empty."""
    renamed = {}
    for name, tensor in state.items():
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        if name:
            renamed[name] = tensor
    return renamed


def _assembled(state: dict[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Fuse q, k and v, split a fused gate, flatten the patch convolution, split positions into prefix and grid."""
    for block in range(config.depth):
        stem = f"blocks.{block}.attention"
        for kind in ("weight", "bias"):
            parts = [f"{stem}.{letter}.{kind}" for letter in "qkv"]
            if all(part in state for part in parts):
                state[f"{stem}.qkv.{kind}"] = torch.cat([state.pop(part) for part in parts])
            fused = state.get(f"blocks.{block}.mlp.expand.{kind}")
            if config.mlp == "swiglu" and fused is not None and len(fused) == 2 * config.hidden:
                for name, half in zip(("gate", "expand"), fused.chunk(2), strict=True):
                    state[f"blocks.{block}.mlp.{name}.{kind}"] = half
    projection = state.get("embedding.projection.weight")
    if projection is not None:
        # (D, 3, patch, patch) to (D, 3 * patch * patch)
        state["embedding.projection.weight"] = projection.flatten(1)
    positions = state.pop("pos_embed", None)
    tokens = [state.pop(name)[0] for name in ("cls_token", "dist_token", "reg_token") if name in state]
    if positions is not None:
        rows, columns = config.table
        # (1, extra + rows * columns, D); detectors drop the class position together with the class token.
        extra = positions.shape[1] - rows * columns
        if extra >= 0:
            state["embedding.table"] = torch.unflatten(positions[0, extra:], 0, (rows, columns))
            prefix = torch.cat(tokens) if tokens and config.prefix else positions.new_zeros(0, config.dim)
            # Tokens that have a position come first: class, distillation; registers have none.
            placed = min(extra, len(prefix))
            state["embedding.prefix"] = torch.cat([prefix[:placed] + positions[0, :placed], prefix[placed:]])
        else:
            state["pos_embed"] = positions
    return state


# Reading and checking files.

_ADDED = ("embedding.fusion.", "spread.")
"""Parts for coarse tokens, which start from zero and which checkpoints of other sources lack."""


def load_weights(encoder: Encoder, path: str | Path, source: str) -> None:
    """Load a checkpoint of `source` (vgtok, codetr, timm or transformers) into an encoder.

    Every tensor must match. Only fusion and spread, which checkpoints of other sources lack, may stay as initialized.
    """
    if source not in WEIGHT_FILTERS:
        raise InputError(f"source: '{source}' is not one of {', '.join(WEIGHT_FILTERS)}")
    state = WEIGHT_FILTERS[source](read_state(Path(path)), encoder.config)
    for part in _ADDED:
        if not any(name.startswith(part) for name in state):
            state.update({name: t for name, t in encoder.state_dict().items() if name.startswith(part)})
    check_state(state, encoder, str(path))
    encoder.load_state_dict(state)


def check_state(state: Mapping[str, Tensor], module: nn.Module, origin: str) -> None:
    """Raise InputError if a state dict does not fit a module, naming every missing, extra and misshapen tensor."""
    wanted = module.state_dict()
    check_tensors(state, wanted, f"{origin}: does not fit this {type(module).__name__}")
    for name, tensor in state.items():
        if tensor.is_floating_point() != wanted[name].is_floating_point():
            raise InputError(f"{origin}: {name} holds {tensor.dtype} instead of {wanted[name].dtype}; save it again")


def check_tensors(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], verdict: str) -> None:
    """Raise InputError if tensors differ from the wanted ones in name or shape; `verdict` starts the message."""
    missing = sorted(wanted.keys() - state.keys())
    extra = sorted(state.keys() - wanted.keys())
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in state and state[name].shape != tensor.shape
    ]
    faults = [
        f"{label}: {', '.join(names)}"
        for label, names in (("missing", missing), ("extra", extra), ("of another shape", misshapen))
        if names
    ]
    if faults:
        raise InputError(f"{verdict}; {'; '.join(faults)}. Choose the configuration it was made with")


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file, or of a torch file of tensors and plain values.

    Raise InputError if a weight is NaN or infinite.
    """
    if not (is_there(path) and path.is_file()):
        raise InputError(f"{path}: no such file")
    state = _read(path)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise InputError(f"{path}: {name} holds NaN or infinite values; the training that made it has diverged")
    return state


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        # It also raises errors of memory mapping, of torch and of names that are not text.
        except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, MemoryError) as error:
            raise InputError(f"{path}: not a safetensors file ({_first_line(error)})") from None
    try:
        # weights_only refuses pickles that would run code.
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"{path}: not a file of plain tensors ({_first_line(error)})") from None
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_meta
        for name, tensor in content.items()
    ):
        raise InputError(f"{path}: holds no state dict of tensors")
    return dict(content)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
