"""Anchor boxes of the auxiliary heads, and which object each anchor answers for by overlap."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vgtok.detect.deformable import Shapes
from vgtok.detect.suppression import overlaps

BACKGROUND = -1
UNDECIDED = -2
"""What an anchor answers for when it answers for no object: nothing, or it is left out of the loss."""

_ANCHORS_AT_ONCE = 8192
"""Anchors compared with all objects at one time: their overlaps then stay in a processor's cache."""


def level_anchors(
    shapes: Shapes, strides: tuple[int, ...], scales: tuple[float, ...], ratios: tuple[float, ...], like: Tensor
) -> list[Tensor]:
    """(rows * columns * ratios * scales, 4) corner boxes of every level, on the device of `like`.

    An anchor stands on its cell's first corner; a ratio is height over width at the same area, a scale is in strides.
    """
    anchors = []
    for (rows, columns), stride in zip(shapes, strides, strict=True):
        ratio = torch.tensor(ratios, device=like.device).repeat_interleave(len(scales)).sqrt()
        side = torch.tensor(scales, device=like.device).repeat(len(ratios)) * stride
        half = torch.stack([side / ratio, side * ratio], dim=-1) / 2
        y, x = (torch.arange(n, device=like.device, dtype=torch.float32) * stride for n in (rows, columns))
        # (rows * columns, 1, 2) places and (1, ratios * scales, 2) half sides
        place = torch.cartesian_prod(y, x).flip(-1)[:, None]
        anchors.append(torch.cat([place - half, place + half], dim=-1).flatten(0, 1))
    return anchors


def assign_by_overlap(boxes: Tensor, objects: Tensor, positive: float, negative: float, *, keep_best: bool) -> Tensor:
    """(A,) object each of (A, 4) boxes answers for among (N, 4): its best one if it overlaps by `positive` or more.

    Below `negative` a box is background, between the two undecided. With `keep_best`, an object whose best overlap is
    at least `negative` also gets every box that reaches it.
    """
    owner = torch.full((len(boxes),), BACKGROUND, dtype=torch.long, device=boxes.device)
    if not len(objects) or not len(boxes):
        return owner
    best_of_object = torch.zeros(len(objects), device=boxes.device)
    claims = []
    for start, (chunk, part) in zip(range(0, len(boxes), _ANCHORS_AT_ONCE), _chunks(boxes, owner), strict=True):
        overlap = overlaps(chunk, objects)
        best, index = overlap.max(dim=1)
        part[best >= negative] = UNDECIDED
        part[best >= positive] = index[best >= positive]
        if keep_best:
            best_here = overlap.amax(dim=0)
            box, thing = ((overlap == best_here) & (best_here >= negative)).nonzero(as_tuple=True)
            claims.append((box + start, thing, best_here[thing]))
            best_of_object = torch.maximum(best_of_object, best_here)
    if keep_best:
        box, thing, value = (torch.cat(column) for column in zip(*claims, strict=True))
        reached = value == best_of_object[thing]
        # Where several objects claim a box, the last one has it.
        claimed = torch.full_like(owner, BACKGROUND).scatter_reduce(0, box[reached], thing[reached], "amax")
        owner = torch.where(claimed >= 0, claimed, owner)
    return owner


def _chunks(boxes: Tensor, owner: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(A, 4) boxes and views of their (A,) owners, some at a time."""
    return zip(*(torch.split(part, _ANCHORS_AT_ONCE) for part in (boxes, owner)), strict=True)


def sample(owner: Tensor, count: int, share: float) -> tuple[Tensor, Tensor]:
    """Indices of positives and of background drawn from (A,) owners: `count` in all, at most `share` positive."""
    positives, negatives = (owner >= 0).nonzero().flatten(), (owner == BACKGROUND).nonzero().flatten()
    positives = _drawn(positives, int(count * share))
    return positives, _drawn(negatives, count - len(positives))


def _drawn(indices: Tensor, count: int) -> Tensor:
    """At most `count` of (n,) indices, at random."""
    return indices[torch.randperm(len(indices), device=indices.device)[:count]]
