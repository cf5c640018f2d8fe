"""ViT and DeiT of transformers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from vgtok.hosts.adapters import HALF, IMAGENET, Host
from vgtok.hosts.outputs import norm_then_pooler
from vgtok.hosts.sizes import TRAINED_SIZE, check_trained_size


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    return model.embeddings(images, interpolate_pos_encoding=options.get("interpolate_pos_encoding", False))


_VIT = Host(
    name="ViT",
    library="transformers",
    classes=("ViTModel",),
    projection="embeddings.patch_embeddings.projection",
    layers="layers",
    embed=_embed,
    finish=norm_then_pooler,
    normalization=lambda model: HALF,
    options=("interpolate_pos_encoding",),
    check_size=check_trained_size,
    sizes=TRAINED_SIZE,
)

FAMILIES = (
    _VIT,
    # A class and a distillation token.
    replace(
        _VIT, name="DeiT", classes=("DeiTModel",), special=lambda model: (2, 0), normalization=lambda model: IMAGENET
    ),
)
