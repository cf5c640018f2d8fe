"""ViT, DeiT and DINOv2 of timm, and its EVA-02 and DINOv3, which have rotary positions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vgtok.errors import InputError
from vgtok.hosts.adapters import IMAGENET, Arguments, Host, Normalization, Pass
from vgtok.hosts.plan import Plan


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    embedded = model._pos_embed(model.patch_embed(images))
    # EVA also returns its rotations, which are those of the dense grid.
    return embedded[0] if isinstance(embedded, tuple) else embedded


def _finish(model: Any, call: Pass) -> Tensor:
    return call.plan.spread(model.norm(call.last))


def _normalization(model: Any) -> Normalization:
    settings = getattr(model, "pretrained_cfg", None) or {}
    return tuple(settings.get("mean", IMAGENET[0])), tuple(settings.get("std", IMAGENET[1]))


def _check(model: Any) -> None:
    dropped = getattr(model.patch_drop, "prob", 0.0)
    if dropped:
        raise InputError(f"model: it drops {dropped:.0%} of its patches in training; build it with patch_drop_rate=0")
    if not isinstance(getattr(model.patch_embed, "norm", nn.Identity()), nn.Identity):
        raise InputError("model: a norm inside the patch embedding cannot be wrapped")


def _check_rotary(model: Any) -> None:
    _check(model)
    rope = model.rope
    if rope is None:
        return
    scaled = getattr(rope, "ref_feat_shape", None) is not None and not rope.in_pixels
    relative = getattr(rope, "normalize_coords", None) == "separate"
    if getattr(model, "rope_mixed", False) or not (scaled or relative) or rope.grid_offset:
        raise InputError("model: only the rotary positions of EVA-02 and DINOv3 are known between patches")


def _check_size(model: Any, size: tuple[int, int], options: Mapping[str, Any]) -> None:
    trained = model.patch_embed.img_size
    if not model.dynamic_img_size and trained is not None and size != tuple(trained):
        raise InputError(
            f"pixel_values: images of {size[0]} x {size[1]} px, but this model takes {trained[0]} x {trained[1]}; "
            "resize them, or build the model with dynamic_img_size=True"
        )
    patch = model.patch_embed.patch_size
    if any(side % length for side, length in zip(size, patch, strict=True)):
        raise InputError(f"pixel_values: images of {size[0]} x {size[1]} px are not whole patches of {patch[0]} px")


def _rotations(model: Any, plan: Plan, pixel_values: Tensor) -> Arguments:
    """Rotate every token by the position of its center."""
    rope = model.rope
    if rope is None:
        return lambda slots: {}
    rows, columns = plan.grid
    covered = plan.covered
    if hasattr(rope, "periods"):
        # Centers from -1 to 1, with the augmentation of training.
        sides = torch.tensor(plan.grid, device=covered.device, dtype=torch.float32)
        center = 2 * (torch.stack([plan.row, plan.column], dim=1) + covered / 2) / sides - 1
        angles = torch.cat(rope._get_pos_embed_from_coords(rope._apply_coord_augs(center)), dim=-1)
    else:
        # On a grid of half cells the center of any token is a point.
        double = rope._get_pos_embed_values([2 * rows, 2 * columns], device=covered.device)
        down, right = 2 * plan.row + covered[:, 0] - 1, 2 * plan.column + covered[:, 1] - 1
        angles = double[down * 2 * columns + right]
    packed = angles.new_zeros(len(plan), angles.shape[1]).index_copy(0, plan.slot, angles).to(pixel_values.dtype)
    specials = plan.special.shape[1]
    return lambda slots: {"rope": packed[slots[:, specials:]][:, None]}


_VIT = Host(
    name="ViT, DeiT, DINOv2",
    library="timm",
    classes=("VisionTransformer",),
    projection="patch_embed.proj",
    layers="blocks",
    embed=_embed,
    before_layers="norm_pre",
    finish=_finish,
    normalization=_normalization,
    special=lambda model: (model.num_prefix_tokens, 0),
    method="forward_features",
    check=_check,
    check_size=_check_size,
    mask="attn_mask",
    refused=("forward_intermediates", "get_intermediate_layers"),
    checkpointed=lambda model: model.grad_checkpointing and model.training,
    hidden_states=False,
    sizes="the trained one; whole patches with dynamic_img_size=True",
)

FAMILIES = (
    _VIT,
    replace(
        _VIT,
        name="EVA-02, DINOv3",
        classes=("Eva",),
        check=_check_rotary,
        arguments=_rotations,
        refused=("forward_intermediates",),
    ),
)
