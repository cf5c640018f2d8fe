"""One training pass over images of one size: auxiliary heads first, then one decoder pass for all queries.

Feature maps and targets enter, weighted losses by name leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from vgtok.detect.boxes import inverse_sigmoid, to_centers
from vgtok.detect.config import DetectorConfig
from vgtok.detect.losses import (
    PADDING,
    Assigned,
    QueryGroups,
    QueryPart,
    SetPrediction,
    Sizes,
    Targets,
    match,
    pixels_per_share,
    query_losses,
)
from vgtok.detect.query_head import Encoded, QueryTransformer
from vgtok.detect.roi import Positives

if TYPE_CHECKING:
    from vgtok.detect.model import CoDetr, SizeGroup


def denoising_queries(
    targets: Sequence[Targets], embedding: nn.Embedding, config: DetectorConfig, sizes: Sizes
) -> QueryPart | None:
    """Return groups of noised copies of B images' objects, or None if there are no objects.

    A group holds a near and a far copy of each object, so there are about 2 x `config.denoising` queries.
    """
    most = max(len(target.labels) for target in targets)
    if most == 0:
        return None
    groups = max(1, config.denoising // most)
    device = embedding.weight.device
    # (B, most): the objects of the batch, padded
    labels = torch.full((len(targets), most), PADDING, dtype=torch.long, device=device)
    boxes = torch.zeros(len(targets), most, 4, device=device)
    for image, target in enumerate(targets):
        labels[image, : len(target.labels)] = target.labels
        boxes[image, : len(target.labels)] = target.boxes
    # (B, groups * 2 * most): per group all near copies, then all far ones
    labels, boxes = labels.repeat(1, groups * 2), boxes.repeat(1, groups * 2, 1)
    far = (torch.arange(groups * 2 * most, device=device) // most % 2).bool()
    noised = _noised_boxes(boxes / pixels_per_share(sizes, boxes), far, config.box_noise)
    content = embedding(_noised_labels(labels, config)) * (labels != PADDING)[..., None]
    group = torch.arange(groups, device=device).repeat_interleave(2 * most)
    wanted = torch.where(far & (labels != PADDING), config.classes, labels)
    return QueryPart(content, noised, group, sees_proposals=True, assigned=Assigned(wanted, boxes))


def _noised_labels(labels: Tensor, config: DetectorConfig) -> Tensor:
    """Redraw a random share of (B, n) labels: half of `label_noise`; some draws repeat the true label."""
    drawn = torch.randint_like(labels, config.classes)
    changed = torch.rand(labels.shape, device=labels.device) < config.label_noise * 0.5
    return torch.where(changed, drawn, labels).clamp(min=0)


def _noised_boxes(boxes: Tensor, far: Tensor, noise: float) -> Tensor:
    """Move each side of (B, n, 4) corner boxes by up to `noise` half sides, twice as much where `far` (n,)."""
    half = (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2) / 2
    amount = torch.rand_like(boxes) + far[:, None]
    sign = torch.randint_like(boxes, 2) * 2 - 1
    moved = (boxes + sign * amount * half * noise).clamp(0, 1)
    return inverse_sigmoid(to_centers(moved)).sigmoid()


_LEAST = 9
"""Least number of queries per image and head: negatives fill up missing positives, with background as target."""


def auxiliary_queries(
    head: str, found: Sequence[Positives], transformer: QueryTransformer, config: DetectorConfig, sizes: Sizes
) -> QueryPart | None:
    """Return the positives of one auxiliary head in B images as queries, at most `config.positives` each, or None.

    Every image gets as many queries as the one with most positives; negatives fill up the others as far as they go.
    """
    longest = max(_LEAST, min(config.positives, max(len(image.labels) for image in found)))
    device = found[0].boxes.device
    labels = torch.full((len(found), longest), PADDING, dtype=torch.long, device=device)
    boxes, goals = (torch.zeros(len(found), longest, 4, device=device) for _ in range(2))
    for number, image in enumerate(found):
        chosen = torch.randperm(len(image.labels), device=device)[:longest]
        labels[number, : len(chosen)] = image.labels[chosen]
        boxes[number, : len(chosen)] = image.boxes[chosen]
        goals[number, : len(chosen)] = image.goals[chosen]
        if len(chosen) < longest:
            filling = torch.randperm(len(image.negatives), device=device)[: longest - len(chosen)]
            filled = slice(len(chosen), len(chosen) + len(filling))
            labels[number, filled] = config.classes
            boxes[number, filled] = image.negatives[filling]
    if (labels == PADDING).all():
        return None
    # Not clipped to the image: the center and size of an anchor say more than its part inside.
    shares = to_centers(boxes / pixels_per_share(sizes, boxes))
    group = torch.zeros(longest, dtype=torch.long, device=device)
    content = transformer.auxiliary_content(head, shares)
    return QueryPart(content, shares, group, sees_proposals=False, assigned=Assigned(labels, goals))


LossKinds = Literal["all", "auxiliary"]
"""The losses to compute: of all heads, or of the auxiliary heads alone."""


def group_losses(
    model: CoDetr, group: SizeGroup, targets: Sequence[Targets], queries: int | None, kinds: LossKinds
) -> dict[str, Tensor]:
    """Return the weighted losses of b images by name, `part/kind` or `part/layer/kind`, with at most `queries` queries.

    Auxiliary heads work in pixels of the crop. Queries are shares of the canvas, so their targets are moved there.
    """
    encoded = model.query_head.encode(model.neck(group.features, group.sites), group.view, sites=group.sites)
    losses, positives = _auxiliary_losses(model, encoded, targets, group.size)
    if kinds == "auxiliary":
        return losses
    sizes = group.canvases
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
    """Return the losses of the model's auxiliary heads, and the positives of each head by name."""
    losses: dict[str, Tensor] = {}
    positives: dict[str, list[Positives]] = {}
    if not model.config.auxiliary:
        return losses, positives
    levels, sites = model.query_head.auxiliary_levels(encoded), encoded.sites
    if model.rpn_head is not None and model.roi_head is not None:
        # They read whole maps, and only in training.
        maps = levels if sites is None else [sites.map(levels[0]), *levels[1:]]
        found, regions = model.rpn_head.loss(maps, targets, size)
        losses |= _named("rpn", found)
        found, positives["roi"] = model.roi_head.loss(maps, regions, targets)
        losses |= _named("roi", found)
    if model.atss_head is not None:
        found, positives["atss"] = model.atss_head.loss(levels, targets, sites)
        losses |= _named("atss", found)
    return losses, positives


def _query_groups(
    model: CoDetr, positives: dict[str, list[Positives]], targets: Sequence[Targets], sizes: Sizes
) -> QueryGroups | None:
    """Return noised ground truth and the positives of the auxiliary heads, or None if there are no objects."""
    head, config = model.query_head, model.config
    parts: dict[str, QueryPart | None] = {
        "denoising": denoising_queries(targets, head.label_embedding, config, sizes),
        **{
            f"{name}-queries": auxiliary_queries(name, found, head.transformer, config, sizes)
            for name, found in positives.items()
        },
    }
    present = {name: part for name, part in parts.items() if part is not None}
    return QueryGroups(present) if present else None


def _named(part: str, losses: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": value for name, value in losses.items()}
