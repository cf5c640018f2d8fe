"""DINOv2 of transformers, model and backbone, with and without registers."""

from dataclasses import replace

from vgtok.hosts.adapters import IMAGENET, Host
from vgtok.hosts.outputs import norm_then_first, norm_then_maps, stages

_MODEL = Host(
    name="DINOv2",
    library="transformers",
    classes=("Dinov2Model",),
    projection="embeddings.patch_embeddings.projection",
    layers="encoder.layer",
    embed=lambda model, images, options: model.embeddings(images),
    finish=norm_then_first("layernorm"),
    normalization=lambda model: IMAGENET,
)

_REGISTERS = replace(
    _MODEL,
    name="DINOv2 with registers",
    classes=("Dinov2WithRegistersModel",),
    special=lambda model: (1 + model.config.num_register_tokens, 0),
)

FAMILIES = (
    _MODEL,
    replace(
        _MODEL,
        name="DINOv2 backbone",
        classes=("Dinov2Backbone",),
        finish=norm_then_maps("layernorm"),
        depths=stages,
    ),
    _REGISTERS,
    replace(
        _REGISTERS,
        name="DINOv2 backbone with registers",
        classes=("Dinov2WithRegistersBackbone",),
        finish=norm_then_maps("layernorm"),
        depths=stages,
    ),
)
