"""OWL-ViT and OWLv2 of transformers: a CLIP tower whose patches each predict one box."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vgtok.hosts.adapters import OPENAI, Host, Pass
from vgtok.hosts.outputs import pooled_output
from vgtok.hosts.plan import Plan
from vgtok.hosts.predictions import sigmoid_best
from vgtok.hosts.sizes import TRAINED_SIZE, check_trained_size


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    return model.embeddings(images, interpolate_pos_encoding=options.get("interpolate_pos_encoding", False))


def _finish(model: Any, call: Pass) -> Any:
    sequence = call.plan.spread(call.last)
    return pooled_output(call, sequence, model.post_layernorm(sequence[:, 0]))


def one_per_token(output: Any, plan: Plan) -> Any:
    """Keep one prediction per token, that of the cell whose corner is its center; the others detect nothing.

    All cells of a coarse token hold the same features, so that each would predict the same object.
    """
    rows, columns = plan.grid
    down, right = ((plan.covered - 1) // 2).unbind(dim=1)
    kept = torch.zeros(len(plan.cells), rows * columns, dtype=torch.bool, device=plan.cells.device)
    kept[plan.image, (plan.row + down) * columns + plan.column + right] = True
    for name, dropped in (("logits", ~kept[..., None]), ("objectness_logits", ~kept)):
        values = output.get(name)
        if values is not None:
            output[name] = values.masked_fill(dropped, torch.finfo(values.dtype).min)
    return output


_OWL = Host(
    name="OWL-ViT",
    library="transformers",
    classes=("OwlViTVisionTransformer",),
    projection="embeddings.patch_embedding",
    layers="encoder.layers",
    embed=_embed,
    before_layers="pre_layernorm",
    finish=_finish,
    normalization=lambda model: OPENAI,
    options=("interpolate_pos_encoding",),
    check_size=check_trained_size,
    outer={"OwlViTForObjectDetection": {"forward": one_per_token, "image_guided_detection": one_per_token}},
    detectors=("OwlViTForObjectDetection",),
    predict=sigmoid_best,
    reads_text=True,
    sizes=TRAINED_SIZE,
    note="one prediction per token below budget 1",
)

FAMILIES = (
    _OWL,
    replace(
        _OWL,
        name="OWLv2",
        classes=("Owlv2VisionTransformer",),
        detectors=("Owlv2ForObjectDetection",),
        squares=True,
        outer={"Owlv2ForObjectDetection": {"forward": one_per_token, "image_guided_detection": one_per_token}},
    ),
)
