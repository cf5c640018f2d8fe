"""Positives of the auxiliary heads as decoder queries: more boxes that each answer for an object, in training only."""

from collections.abc import Sequence

import torch

from vgtok.detect.boxes import inverse_sigmoid, to_centres
from vgtok.detect.losses import PADDING, Assigned, Sizes, pixels_per_share
from vgtok.detect.queries import QueryPart
from vgtok.detect.query_head import QueryTransformer
from vgtok.detect.roi import Positives


def feedback_queries(
    head: str, positives: Sequence[Positives], transformer: QueryTransformer, most: int, sizes: Sizes
) -> QueryPart | None:
    """The positives one head found in B images, at most `most` each; None where there are none."""
    longest = min(most, max(len(found.labels) for found in positives))
    if longest == 0:
        return None
    device = positives[0].boxes.device
    labels = torch.full((len(positives), longest), PADDING, dtype=torch.long, device=device)
    boxes, goals = (torch.zeros(len(positives), longest, 4, device=device) for _ in range(2))
    for image, found in enumerate(positives):
        chosen = torch.randperm(len(found.labels), device=device)[:longest]
        labels[image, : len(chosen)] = found.labels[chosen]
        boxes[image, : len(chosen)] = found.boxes[chosen]
        goals[image, : len(chosen)] = found.goals[chosen]
    # Anchors may reach beyond the image; a reference may not.
    inside = (boxes / pixels_per_share(sizes, boxes)).clamp(0, 1)
    shares = inverse_sigmoid(to_centres(inside)).sigmoid()
    group = torch.zeros(longest, dtype=torch.long, device=device)
    content = transformer.feedback(head, shares)
    return QueryPart(content, shares, group, sees_proposals=False, assigned=Assigned(labels, goals))
