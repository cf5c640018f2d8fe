"""The encoder of ViT-MAE in transformers, without masking."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vgtok.errors import InputError
from vgtok.hosts.adapters import IMAGENET, Host, Pass
from vgtok.hosts.sizes import TRAINED_SIZE, check_trained_size


def _check(model: Any) -> None:
    if model.config.mask_ratio:
        raise InputError(
            f"model: ViT-MAE hides {model.config.mask_ratio:.0%} of the patches, which leaves no partition to merge; "
            "set model.config.mask_ratio = 0.0"
        )


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    patch = model.config.patch_size
    cells = (images.shape[2] // patch) * (images.shape[3] // patch)
    # Rising noise keeps the patches in reading order.
    noise = torch.arange(cells, device=images.device, dtype=torch.float32)[None]
    return model.embeddings(images, noise, options.get("interpolate_pos_encoding", False))[0]


def _finish(model: Any, call: Pass) -> Any:
    sequence = call.plan.spread(model.layernorm(call.last))
    hidden = call.hidden_states()
    images, cells = call.plan.cells.shape
    noise = call.options.get("noise")
    if noise is None:
        order = torch.arange(cells, device=sequence.device).expand(images, -1)
    else:
        order = torch.argsort(noise, dim=1)
    # The host returns patches in the order of their noise.
    shuffled = torch.cat([torch.zeros_like(order[:, :1]), order + 1], dim=1)
    at = torch.arange(images, device=sequence.device)[:, None]
    return sys.modules[type(model).__module__].ViTMAEModelOutput(
        last_hidden_state=sequence[at, shuffled],
        mask=torch.zeros(images, cells, device=sequence.device),
        ids_restore=torch.argsort(order, dim=1),
        hidden_states=None if hidden is None else tuple(state[at, shuffled] for state in hidden),
    )


FAMILIES = (
    Host(
        name="ViT-MAE encoder",
        library="transformers",
        classes=("ViTMAEModel",),
        projection="embeddings.patch_embeddings.projection",
        layers="layers",
        embed=_embed,
        finish=_finish,
        normalization=lambda model: IMAGENET,
        options=("interpolate_pos_encoding", "noise"),
        check=_check,
        check_size=check_trained_size,
        sizes=TRAINED_SIZE,
        note="mask_ratio 0 only; without noise= the patches come in reading order",
    ),
)
