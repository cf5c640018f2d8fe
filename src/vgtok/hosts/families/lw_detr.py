"""LW-DETR of transformers: a ViT without class token, whose layers attend inside windows or over the image."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vgtok.hosts.adapters import IMAGENET, Host, Pass
from vgtok.hosts.outputs import backbone_output, channels_first, stages
from vgtok.hosts.predictions import sigmoid_all
from vgtok.hosts.sizes import check_windows


def _embed(model: Any, images: Tensor, options: Mapping[str, Any]) -> Any:
    # (B, D, rows, columns) to (B, rows * columns, D)
    return model.embeddings(images).flatten(2).transpose(1, 2)


def _window(model: Any, grid: tuple[int, int]) -> tuple[int, int]:
    side = model.config.num_windows_side
    return grid[0] // side, grid[1] // side


def _check_size(model: Any, size: tuple[int, int], options: Mapping[str, Any]) -> None:
    check_windows(size, model.config.patch_size, model.config.num_windows_side)


def _finish(model: Any, call: Pass) -> Any:
    return backbone_output(
        call, [channels_first(call, call.depths[depth]) for depth in sorted(stages(model, call.options))]
    )


FAMILIES = (
    Host(
        name="LW-DETR",
        library="transformers",
        classes=("LwDetrViTBackbone",),
        projection="embeddings.projection",
        layers="encoder.layer",
        embed=_embed,
        finish=_finish,
        normalization=lambda model: IMAGENET,
        special=lambda model: (0, 0),
        depths=stages,
        check_size=_check_size,
        window=_window,
        is_windowed=lambda layer: layer.window,
        # A global layer joins this many windows; the plan has joined them.
        held={"num_windows": 1},
        detectors=("LwDetrForObjectDetection",),
        predict=sigmoid_all,
        sizes="multiples of the patch and the windows a side",
    ),
)
