"""Checkpoints of others to this encoder's names: one filter per source, each a pure function of a state dict.

A filter renames, fuses q, k and v, folds the class token and its position into the prefix, and leaves out by name what
an encoder does not have (heads, rotary buffers). Whatever it does not know keeps its name, so that loading reports it.
"""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vgtok.encode.config import EncoderConfig

State = Mapping[str, Tensor]
Filter = Callable[[State, EncoderConfig], dict[str, Tensor]]


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
    """This library's own names."""
    return dict(state)


def from_codetr(state: State, config: EncoderConfig) -> dict[str, Tensor]:
    """`backbone.*` of a Co-DETR checkpoint; its plain keys hold the averaged weights, so `ema_*` is left out."""
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
    """A timm ViT, DeiT or EVA-02."""
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
    """A transformers ViT or DINOv2, by its names in memory or in files, with or without a task head around it."""
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


SOURCES: dict[str, Filter] = {
    "vgtok": from_vgtok,
    "codetr": from_codetr,
    "timm": from_timm,
    "transformers": from_transformers,
}
"""Every source of weights by name."""


def _renamed(state: State, names: list[tuple[str, str]]) -> dict[str, Tensor]:
    """Apply every (pattern, new name) in turn; a name that becomes empty is left out."""
    renamed = {}
    for name, tensor in state.items():
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        if name:
            renamed[name] = tensor
    return renamed


def _assembled(state: dict[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Fuse q, k and v, part a fused gate, flatten the patch convolution, cut the position table in prefix and grid."""
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
