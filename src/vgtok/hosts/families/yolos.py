"""YOLOS of transformers: a ViT whose last tokens are the detections."""

from typing import Any

from torch import Tensor

from vgtok.hosts.adapters import IMAGENET, Host
from vgtok.hosts.outputs import norm_then_pooler
from vgtok.hosts.predictions import softmax_best


def _between(model: Any, pixel_values: Tensor) -> Tensor | None:
    """Return the positions it adds after each layer but the last, (depth - 1, L, D)."""
    if not model.config.use_mid_position_embeddings:
        return None
    height, width = pixel_values.shape[2:]
    positions: Tensor = model.encoder.interpolation((height, width))
    return positions[:, 0]


FAMILIES = (
    Host(
        name="YOLOS",
        library="transformers",
        classes=("YolosModel",),
        projection="embeddings.patch_embeddings.projection",
        layers="encoder.layer",
        embed=lambda model, images, options: model.embeddings(images),
        finish=norm_then_pooler,
        normalization=lambda model: IMAGENET,
        # The class token stands before the patches, the detections after them.
        special=lambda model: (1, model.config.num_detection_tokens),
        between=_between,
        mask=None,
        detectors=("YolosForObjectDetection",),
        predict=softmax_best,
        # Its processor cuts sides to whole patches of 16 px, whatever the patch of the model.
        multiple=16,
    ),
)
