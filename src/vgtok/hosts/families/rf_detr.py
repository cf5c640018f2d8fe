"""RF-DETR of transformers: a DINOv2 with windows, each with a class token of its own."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vgtok.errors import InputError
from vgtok.hosts.adapters import IMAGENET, Host
from vgtok.hosts.outputs import norm_then_maps, stages
from vgtok.hosts.predictions import sigmoid_all
from vgtok.hosts.sizes import check_windows


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Tensor:
    # Its own forward also cuts the sequence into windows, which the plan does.
    embeddings = model.embeddings
    patches = embeddings.patch_embeddings(images)
    sequence = torch.cat([embeddings.cls_token.expand(len(images), -1, -1), patches], dim=1)
    positions: Tensor = embeddings.interpolate_pos_encoding(sequence, *images.shape[2:])
    return sequence + positions


def _window(model: Any, grid: tuple[int, int]) -> tuple[int, int]:
    windows = model.config.num_windows
    return grid[0] // windows, grid[1] // windows


def _check_size(model: Any, size: tuple[int, int], options: Mapping[str, Any]) -> None:
    if model.config.num_windows > 1 and size[0] != size[1]:
        raise InputError(
            f"pixel_values: images of {size[0]} x {size[1]} px are not square, and RF-DETR in transformers cuts wrong "
            "windows from those; resize them to a square, as its processor does"
        )
    check_windows(size, model.config.patch_size, model.config.num_windows)


FAMILIES = (
    Host(
        name="RF-DETR",
        library="transformers",
        classes=("RfDetrDinov2Backbone",),
        projection="embeddings.patch_embeddings.projection",
        layers="encoder.layer",
        embed=_embed,
        finish=norm_then_maps("layernorm"),
        normalization=lambda model: IMAGENET,
        depths=stages,
        check_size=_check_size,
        window=_window,
        is_windowed=lambda layer: not layer.global_attention,
        # A global layer joins this many windows a side; the plan has joined them.
        held={"num_windows": 1},
        detectors=("RfDetrForObjectDetection", "RfDetrForInstanceSegmentation"),
        predict=sigmoid_all,
        sizes="square, multiples of the patch and the windows a side",
    ),
)
