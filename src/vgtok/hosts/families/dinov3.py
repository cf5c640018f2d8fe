"""DINOv3 ViT of transformers, model and backbone: registers, and rotary positions instead of a table."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vgtok.hosts.adapters import IMAGENET, Arguments, Host, Pass
from vgtok.hosts.outputs import channels_first, norm_then_first, stages
from vgtok.hosts.plan import Plan


def _rotations(model: Any, plan: Plan, pixel_values: Tensor) -> Arguments:
    """Rotate every token by the position of its center; in training the host's own augmentation of positions acts."""
    rope, config = model.rope_embeddings, model.config
    sides = torch.tensor(plan.grid, device=plan.row.device, dtype=torch.float32)
    corner = torch.stack([plan.row, plan.column], dim=1)
    # (T, 2) centers from -1 to 1
    center = 2.0 * ((corner + plan.covered / 2) / sides) - 1.0
    if rope.training:
        center = sys.modules[type(rope).__module__].augment_patches_center_coordinates(
            center, shift=config.pos_embed_shift, jitter=config.pos_embed_jitter, rescale=config.pos_embed_rescale
        )
    # (T, 2, head_dim / 4) to (T, head_dim), in the packed sequence
    angle = (2 * math.pi * center[:, :, None] * rope.inv_freq).flatten(1).tile(2)
    packed = angle.new_zeros(len(plan), angle.shape[1]).index_copy(0, plan.slot, angle)
    cosine, sine = (part.to(pixel_values.dtype) for part in (packed.cos(), packed.sin()))
    specials = plan.special.shape[1]

    def arguments(slots: Tensor) -> Mapping[str, Any]:
        regions = slots[:, specials:]
        return {"position_embeddings": (cosine[regions][:, None], sine[regions][:, None])}

    return arguments


def _stages(model: Any, options: Mapping[str, Any]) -> set[int]:
    # Its output also holds the last hidden state.
    return stages(model, options) | {len(model.model.layer)}


def _maps(model: Any, call: Pass) -> Any:
    last = len(model.model.layer)
    maps, classes = [], []
    for depth in sorted(stages(model, call.options)):
        normed = depth == last or model.config.apply_layernorm
        sequence = model.norm(call.depths[depth]) if normed else call.depths[depth]
        dense = call.plan.spread(sequence)
        classes.append(dense[:, 0])
        reshaped = model.config.reshape_hidden_states
        maps.append(channels_first(call, sequence) if reshaped else dense[:, call.plan.special.shape[1] :])
    kind = sys.modules[type(model).__module__].DINOv3ViTBackboneOutput
    chosen = tuple(classes) if getattr(model.config, "return_class_token", False) else None
    output = kind(feature_maps=tuple(maps), cls_tokens=chosen, hidden_states=call.hidden_states())
    output.last_hidden_state = call.plan.spread(model.norm(call.depths[last]))
    return output


_MODEL = Host(
    name="DINOv3",
    library="transformers",
    classes=("DINOv3ViTModel",),
    projection="embeddings.patch_embeddings",
    layers="model.layer",
    embed=lambda model, images, options: model.embeddings(images),
    finish=norm_then_first("norm"),
    normalization=lambda model: IMAGENET,
    special=lambda model: (1 + model.config.num_register_tokens, 0),
    arguments=_rotations,
)

FAMILIES = (
    _MODEL,
    replace(_MODEL, name="DINOv3 backbone", classes=("DINOv3ViTBackbone",), finish=_maps, depths=_stages),
)
