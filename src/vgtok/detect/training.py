"""One training pass over images of one size: auxiliary heads first, then one decoder pass for all queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from vgtok.detect.denoising import denoising_queries
from vgtok.detect.feedback import feedback_queries
from vgtok.detect.losses import SetPrediction, Sizes, Targets, match, query_losses
from vgtok.detect.queries import QueryGroups, QueryPart
from vgtok.detect.query_head import Encoded
from vgtok.detect.roi import Positives

if TYPE_CHECKING:
    from vgtok.detect.model import CoDetr, SizeGroup


LossKinds = Literal["all", "auxiliary"]
"""Which losses are taken: those of every head, or of the auxiliary heads alone."""


def group_losses(
    model: CoDetr, group: SizeGroup, targets: Sequence[Targets], queries: int | None, kinds: LossKinds
) -> dict[str, Tensor]:
    """Weighted losses by name, `part/kind` or `part/layer/kind`, of b images; at most `queries` proposals are read.

    Auxiliary heads work in pixels of the map. Queries are shares of the frame, so their targets move there.
    """
    encoded = model.query_head.encode(model.neck(group.features), group.view)
    losses, positives = _auxiliary_losses(model, encoded, targets, group.size)
    if kinds == "auxiliary":
        return losses
    sizes = group.frames
    corners = [group.features.new_tensor([x, y, x, y], dtype=torch.float32) for x, y in group.corners]
    targets = [Targets(t.boxes + corner, t.labels) for t, corner in zip(targets, corners, strict=True)]
    positives = {
        name: [part.moved(corner) for part, corner in zip(found, corners, strict=True)]
        for name, found in positives.items()
    }
    proposals = model.query_head.propose(encoded, queries)
    losses |= _named("proposals", query_losses(proposals, match(proposals, targets, sizes), sizes))
    groups = _query_groups(model, positives, targets, sizes)
    for layer, everything in enumerate(model.query_head.decode(encoded, proposals, groups)):
        found_by_queries, others = everything, dict[str, SetPrediction]()
        if groups is not None:
            found_by_queries, others = groups.split(everything)
            for name, prediction in others.items():
                found = query_losses(prediction, groups.parts[name].assigned, sizes)
                losses |= _named(f"{name}/{layer}", found)
        losses |= _named(
            f"queries/{layer}", query_losses(found_by_queries, match(found_by_queries, targets, sizes), sizes)
        )
    return losses


def _auxiliary_losses(
    model: CoDetr, encoded: Encoded, targets: Sequence[Targets], size: tuple[int, int]
) -> tuple[dict[str, Tensor], dict[str, list[Positives]]]:
    """Losses of the auxiliary heads the model has, and the positives of each by name."""
    losses: dict[str, Tensor] = {}
    positives: dict[str, list[Positives]] = {}
    if not model.config.auxiliary:
        return losses, positives
    maps = model.query_head.auxiliary_maps(encoded)
    if model.rpn_head is not None and model.roi_head is not None:
        found, regions = model.rpn_head.loss(maps, targets, size)
        losses |= _named("rpn", found)
        found, positives["roi"] = model.roi_head.loss(maps, regions, targets)
        losses |= _named("roi", found)
    if model.atss_head is not None:
        found, positives["atss"] = model.atss_head.loss(maps, targets)
        losses |= _named("atss", found)
    return losses, positives


def _query_groups(
    model: CoDetr, positives: dict[str, list[Positives]], targets: Sequence[Targets], sizes: Sizes
) -> QueryGroups | None:
    """Noised ground truth and the positives of the auxiliary heads; None where the images hold no object."""
    head, config = model.query_head, model.config
    parts: dict[str, QueryPart | None] = {
        "denoising": denoising_queries(targets, head.label_embedding, config, sizes),
        **{
            f"{name}-queries": feedback_queries(name, found, head.transformer, config, sizes)
            for name, found in positives.items()
        },
    }
    present = {name: part for name, part in parts.items() if part is not None}
    return QueryGroups(present) if present else None


def _named(part: str, losses: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": value for name, value in losses.items()}
