"""Adapters for the models of transformers and timm that `wrap` supports, one per family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vgtok.encode.config import EncoderConfig
from vgtok.encode.loading import Filter, from_timm, from_transformers
from vgtok.errors import InputError

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True)
class Host:
    """One family of models.

    `method` is the method `wrap` replaces and `filter` renames the weights. `describe` returns the configuration of a
    model, `has_fixed_size` whether it accepts one image size only, `answer` its output for a (B, P + cells, D) sequence
    and `normalization` the mean and standard deviation of its images.
    """

    method: str
    filter: Filter
    describe: Callable[[Any], EncoderConfig]
    has_fixed_size: Callable[[Any, Mapping[str, Any]], bool]
    answer: Callable[[Any, Tensor, Mapping[str, Any]], Any]
    normalization: Callable[[Any], tuple[tuple[float, ...], tuple[float, ...]]]


def find_host(model: nn.Module) -> tuple[nn.Module, Host]:
    """Return the backbone in `model` and its adapter; raise InputError if there is none."""
    for module in model.modules():
        for kind in type(module).__mro__:
            host = HOSTS.get((kind.__module__.partition(".")[0], kind.__name__))
            if host is not None:
                return module, host
    known = ", ".join(f"{library}.{name}" for library, name in HOSTS)
    raise InputError(f"model: {type(model).__name__} holds no backbone that can be wrapped: {known}")


def _describe_transformers(model: Any) -> EncoderConfig:
    config = model.config
    if getattr(config, "use_swiglu_ffn", False) or config.hidden_act != "gelu":
        raise InputError("model: only the exact-GELU MLP of transformers' ViT and DINOv2 can be wrapped")
    patch = _one(config.patch_size, "patch_size")
    image = config.image_size if isinstance(config.image_size, list | tuple) else (config.image_size,) * 2
    hidden = getattr(config, "intermediate_size", None) or int(config.hidden_size * config.mlp_ratio)
    return EncoderConfig(
        dim=config.hidden_size,
        depth=config.num_hidden_layers,
        heads=config.num_attention_heads,
        hidden=hidden,
        layer_scale=hasattr(config, "layerscale_value"),
        patch=patch,
        table=(image[0] // patch, image[1] // patch),
        norm_eps=config.layer_norm_eps,
        out_norm_eps=config.layer_norm_eps,
        fusion=(),
    )


def _describe_timm(model: Any) -> EncoderConfig:
    block = model.blocks[0]
    rope = getattr(model, "rope", None)
    if rope is not None and tuple(rope.ref_feat_shape or ()) != (16, 16):
        raise InputError(f"model: RoPE stretched onto {rope.ref_feat_shape} cells; only (16, 16) can be wrapped")
    swiglu = type(block.mlp).__name__ in ("SwiGLU", "GluMlp")
    contract = block.mlp.fc2
    return EncoderConfig(
        dim=model.embed_dim,
        depth=len(model.blocks),
        heads=block.attn.num_heads,
        hidden=contract.in_features,
        mlp="swiglu" if swiglu else "gelu",
        mlp_norm=isinstance(getattr(block.mlp, "norm", None), nn.LayerNorm),
        key_bias=getattr(block.attn, "q_bias", None) is None and getattr(block.attn, "q_proj", None) is None,
        rope=rope is not None,
        layer_scale=hasattr(getattr(block, "ls1", None), "gamma") or getattr(block, "gamma_1", None) is not None,
        prefix=model.num_prefix_tokens,
        patch=_one(model.patch_embed.patch_size, "patch_size"),
        table=tuple(model.patch_embed.grid_size),
        norm_eps=block.norm1.eps,
        out_norm_eps=model.norm.eps if isinstance(model.norm, nn.LayerNorm) else None,
        fusion=(),
    )


def _answer_vit(model: Any, sequence: Tensor, options: Mapping[str, Any]) -> Any:
    pooled = model.pooler(sequence) if model.pooler is not None else None
    return _transformers_output(sequence, pooled, options)


def _answer_dinov2(model: Any, sequence: Tensor, options: Mapping[str, Any]) -> Any:
    return _transformers_output(sequence, sequence[:, 0], options)


def _transformers_output(sequence: Tensor, pooled: Tensor | None, options: Mapping[str, Any]) -> Any:
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    # The fields are annotated as FloatTensor, which excludes half precision.
    fields: dict[str, Any] = {"last_hidden_state": sequence, "pooler_output": pooled}
    output = BaseModelOutputWithPooling(**fields)
    return output.to_tuple() if options.get("return_dict") is False else output


def _timm_normalization(model: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    settings = getattr(model, "pretrained_cfg", None) or {}
    return tuple(settings.get("mean", _IMAGENET[0])), tuple(settings.get("std", _IMAGENET[1]))


def _one(size: Any, name: str) -> int:
    sides = set(size) if isinstance(size, list | tuple) else {size}
    if len(sides) > 1:
        raise InputError(f"model: {name} {size} is not square")
    return int(sides.pop())


_TIMM = Host(
    method="forward_features",
    filter=from_timm,
    describe=_describe_timm,
    has_fixed_size=lambda model, options: not getattr(model, "dynamic_img_size", False),
    answer=lambda model, sequence, options: sequence,
    normalization=_timm_normalization,
)

HOSTS: dict[tuple[str, str], Host] = {
    ("transformers", "ViTModel"): Host(
        method="forward",
        filter=from_transformers,
        describe=_describe_transformers,
        has_fixed_size=lambda model, options: not options.get("interpolate_pos_encoding"),
        answer=_answer_vit,
        normalization=lambda model: _HALF,
    ),
    ("transformers", "Dinov2Model"): Host(
        method="forward",
        filter=from_transformers,
        describe=_describe_transformers,
        has_fixed_size=lambda model, options: False,
        answer=_answer_dinov2,
        normalization=lambda model: _IMAGENET,
    ),
    ("timm", "VisionTransformer"): _TIMM,
    ("timm", "Eva"): _TIMM,
}
"""The adapter of each supported backbone, by library and class name."""
