"""Noised ground truth as queries: near copies that should find their object again, far ones that should find none."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vgtok.detect.boxes import inverse_sigmoid, to_centres
from vgtok.detect.config import DetectorConfig
from vgtok.detect.losses import PADDING, Assigned, Sizes, Targets, pixels_per_share
from vgtok.detect.queries import QueryPart


def denoising_queries(
    targets: Sequence[Targets], embedding: nn.Embedding, config: DetectorConfig, sizes: Sizes
) -> QueryPart | None:
    """Groups of noised copies of B images' objects; None where no image has any.

    A group holds a near and a far copy of each object, so there are about twice `config.denoising` queries.
    """
    most = max(len(target.labels) for target in targets)
    if most == 0:
        return None
    groups = max(1, config.denoising // most)
    device = embedding.weight.device
    # (B, most): the batch's objects, filled up
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
    """(B, n) labels, a share of them drawn anew: half the label noise, as some draws hit the truth."""
    drawn = torch.randint_like(labels, config.classes)
    changed = torch.rand(labels.shape, device=labels.device) < config.label_noise * 0.5
    return torch.where(changed, drawn, labels).clamp(min=0)


def _noised_boxes(boxes: Tensor, far: Tensor, noise: float) -> Tensor:
    """(B, n, 4) corner boxes as shares, each side moved by up to `noise` half sides, twice as much where `far` (n,)."""
    half = (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2) / 2
    amount = torch.rand_like(boxes) + far[:, None]
    sign = torch.randint_like(boxes, 2) * 2 - 1
    moved = (boxes + sign * amount * half * noise).clamp(0, 1)
    return inverse_sigmoid(to_centres(moved)).sigmoid()
