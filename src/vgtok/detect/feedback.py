"""Positives of the auxiliary heads as decoder queries: more boxes that each answer for an object, in training only."""

from collections.abc import Sequence

import torch

from vgtok.detect.boxes import to_centres
from vgtok.detect.config import DetectorConfig
from vgtok.detect.losses import PADDING, Assigned, Sizes, pixels_per_share
from vgtok.detect.queries import QueryPart
from vgtok.detect.query_head import QueryTransformer
from vgtok.detect.roi import Positives

_LEAST = 9
"""Queries an image has at least: where it has fewer positives, negatives fill the places and should find nothing."""


def feedback_queries(
    head: str, found: Sequence[Positives], transformer: QueryTransformer, config: DetectorConfig, sizes: Sizes
) -> QueryPart | None:
    """What one head answers for in B images, at most `config.positives` each; None if nothing.

    Every image gets as many queries as the one with most positives, filled up with negatives as far as it has any.
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
    # Not cut to the image: an anchor's centre and size tell more than what is left of it inside.
    shares = to_centres(boxes / pixels_per_share(sizes, boxes))
    group = torch.zeros(longest, dtype=torch.long, device=device)
    content = transformer.feedback(head, shares)
    return QueryPart(content, shares, group, sees_proposals=False, assigned=Assigned(labels, goals))
