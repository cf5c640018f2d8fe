"""One linear map from the pixels under a coarse token to its embedding, merged from the three the model is trained in.

Resampling, projection and fusion are linear. In inference their product reads every pixel once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.encode.config import Resampling

if TYPE_CHECKING:
    from vgtok.encode.embed import FusionStage

Marks = tuple[tuple[int, int, torch.dtype], ...]
"""Memory, version and precision of parameters."""


def resample(cells: Tensor, resampling: Resampling) -> Tensor:
    """Resize regions of (n, span, span, 3, patch, patch) cells to one patch each, (n, 3, patch, patch)."""
    count, span, _, _, patch, _ = cells.shape
    # (n, span, span, 3, patch, patch) to (n, 3, span * patch, span * patch)
    region = cells.permute(0, 3, 1, 4, 2, 5).reshape(count, 3, span * patch, span * patch)
    if span == 1 or count == 0:
        return region[:, :, :patch, :patch]
    if resampling == "area":
        return functional.avg_pool2d(region, span)
    # In fp32: not every device has an antialiasing kernel for half precision.
    small = functional.interpolate(
        region.float(), size=(patch, patch), mode=resampling, align_corners=False, antialias=resampling == "bicubic"
    )
    return small.to(cells.dtype)


def resampling_matrix(span: int, resampling: Resampling, patch: int) -> Tensor:
    """Return the (patch, patch * span) matrix of the separable, linear resampling of a region's rows to one patch's."""
    side = span * patch
    # Region n is 1 on its row n: (side, 3, side, side), then as (side, span, span, 3, patch, patch) cells
    regions = torch.eye(side).view(side, 1, side, 1).expand(-1, 3, -1, side)
    cells = torch.unflatten(torch.unflatten(regions, 3, (span, patch)), 2, (span, patch)).permute(0, 2, 4, 1, 3, 5)
    return resample(cells, resampling)[:, 0, :, 0].T.contiguous()


@dataclass(frozen=True)
class Merged:
    """`weight` (D, span * span * 3 * patch * patch), `bias` (D,), and marks of the parameters they were made from.

    `memory` is that of the parameters, held so that no other parameter can get it and pass for one of them.
    """

    weight: Tensor
    bias: Tensor
    marks: Marks
    memory: tuple[Tensor, ...]


def marks_of(parameters: Sequence[Tensor]) -> Marks | None:
    """Return what changes when a parameter does; None if one has no version counter."""
    if any(parameter.is_inference() for parameter in parameters):
        return None
    return tuple((parameter.data_ptr(), parameter._version, parameter.dtype) for parameter in parameters)


def merge(
    projection: nn.Linear, fused: "tuple[nn.Linear, FusionStage] | None", span: int, resampling: Resampling
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of resampling and projection, together with those of the fusion if there is one."""
    # Outside inference mode: the result is kept, and later calls may be outside it.
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        patch = int((projection.in_features // 3) ** 0.5)
        kernel = torch.unflatten(projection.weight.float(), 1, (3, patch, patch))
        rows = resampling_matrix(span, resampling, patch)
        # (D, 3, patch, patch) to (D, 3, span * patch, span * patch), then to (D, span, span, 3, patch, patch)
        whole = rows.T @ kernel @ rows
        whole = torch.unflatten(torch.unflatten(whole, 3, (span, patch)), 2, (span, patch)).permute(0, 2, 4, 1, 3, 5)
        weight, bias = whole.flatten(1), projection.bias.float()
        if fused is not None:
            from_cells, stage = fused
            added, constant = _fusion(from_cells, stage, span)
            weight, bias = weight + added, bias + constant
        kind = projection.weight.dtype
        return weight.to(kind), bias.to(kind)


def _fusion(projection: nn.Linear, stage: "FusionStage", span: int) -> tuple[Tensor, Tensor]:
    """Return the (D, span * span * 3 * patch * patch) weight and (D,) bias of a fusion as one linear map."""
    reduce, out = stage.reduce, stage.out
    # (D, side, side, D) from the fused vector back to every vector of the grid it was reduced from
    weight, bias, side = out.weight.float()[:, None, None], out.bias.float(), 1
    while side < span:
        bias = bias + weight.sum(dim=(1, 2)) @ reduce.bias.float()
        # (D, side, side, 2, 2, D) to (D, 2 side, 2 side, D)
        fours = torch.unflatten(weight @ reduce.weight.float(), 3, (2, 2, -1))
        side *= 2
        weight = fours.permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(1, 2)
    bias = bias + weight.sum(dim=(1, 2)) @ projection.bias.float()
    return (weight @ projection.weight.float()).flatten(1), bias
