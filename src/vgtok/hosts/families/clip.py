"""The vision towers of CLIP and SigLIP in transformers."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vgtok.hosts.adapters import HALF, OPENAI, Host, Pass
from vgtok.hosts.outputs import pooled_output
from vgtok.hosts.sizes import TRAINED_SIZE, check_trained_size


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    return model.embeddings(images, interpolate_pos_encoding=options.get("interpolate_pos_encoding", False))


def _class_token(model: Any, call: Pass) -> Any:
    sequence = call.plan.spread(call.last)
    return pooled_output(call, sequence, model.post_layernorm(sequence[:, 0]))


def _attention_pool(model: Any, call: Pass) -> Any:
    sequence = call.plan.spread(model.post_layernorm(call.last))
    return pooled_output(call, sequence, model.head(sequence) if model.use_head else None)


FAMILIES = (
    Host(
        name="CLIP vision tower",
        library="transformers",
        classes=("CLIPVisionModel",),
        projection="embeddings.patch_embedding",
        layers="encoder.layers",
        embed=_embed,
        before_layers="pre_layrnorm",
        finish=_class_token,
        normalization=lambda model: OPENAI,
        options=("interpolate_pos_encoding",),
        check_size=check_trained_size,
        sizes=TRAINED_SIZE,
    ),
    Host(
        name="SigLIP vision tower",
        library="transformers",
        classes=("SiglipVisionModel",),
        projection="embeddings.patch_embedding",
        layers="encoder.layers",
        embed=_embed,
        finish=_attention_pool,
        normalization=lambda model: HALF,
        special=lambda model: (0, 0),
        options=("interpolate_pos_encoding",),
        check_size=check_trained_size,
        sizes=TRAINED_SIZE,
    ),
)
