"""The region heads of training: anchors and assignment, the proposal head, RoI align and the RoI head.

Feature maps and targets enter, losses and positives leave; neither head predicts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.boxes import decode, encode
from vgtok.detect.config import DetectorConfig
from vgtok.detect.deformable import Shapes
from vgtok.detect.losses import Targets
from vgtok.detect.neck import ConvNorm
from vgtok.encode.plain import Linear
from vgtok.overlap import iou, nms, paired_iou

BACKGROUND = -1
UNDECIDED = -2
"""Assignments of anchors without an object: background, or left out of the loss."""

_ANCHORS_AT_ONCE = 8192
"""Anchors per chunk: their IoUs with all objects must fit into a cache."""


def level_anchors(
    shapes: Shapes, strides: tuple[int, ...], scales: tuple[float, ...], ratios: tuple[float, ...], like: Tensor
) -> list[Tensor]:
    """Return the (rows * columns * ratios * scales, 4) anchors of every level, on the device of `like`.

    Anchors are centered on the top left corner of their cell. A ratio is height over width at the same area; a scale is
    in strides.
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
    """Return the (A,) object of each of (A, 4) boxes among (N, 4): the best one, if its IoU is at least `positive`.

    Below `negative` a box is background, between the two undecided. With `keep_best`, an object whose best IoU is at
    least `negative` also gets every box with that IoU.
    """
    owner = torch.full((len(boxes),), BACKGROUND, dtype=torch.long, device=boxes.device)
    if not len(objects) or not len(boxes):
        return owner
    best_of_object = torch.zeros(len(objects), device=boxes.device)
    claims = []
    for start, (chunk, part) in zip(range(0, len(boxes), _ANCHORS_AT_ONCE), _chunks(boxes, owner), strict=True):
        overlap = iou(chunk, objects)
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
        # If several objects claim a box, the last one gets it.
        claimed = torch.full_like(owner, BACKGROUND).scatter_reduce(0, box[reached], thing[reached], "amax")
        owner = torch.where(claimed >= 0, claimed, owner)
    return owner


def _chunks(boxes: Tensor, owner: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Split (A, 4) boxes and views of their (A,) owners into chunks."""
    return zip(*(torch.split(part, _ANCHORS_AT_ONCE) for part in (boxes, owner)), strict=True)


def sample(owner: Tensor, count: int, share: float) -> tuple[Tensor, Tensor]:
    """Draw indices of positives and of background from (A,) owners: `count` in total, at most `share` positive."""
    positives, negatives = (owner >= 0).nonzero().flatten(), (owner == BACKGROUND).nonzero().flatten()
    positives = _drawn(positives, int(count * share))
    return positives, _drawn(negatives, count - len(positives))


def _drawn(indices: Tensor, count: int) -> Tensor:
    """Draw at most `count` of (n,) indices at random."""
    return indices[torch.randperm(len(indices), device=indices.device)[:count]]


def roi_align(
    features: Tensor, rois: Tensor, output_size: tuple[int, int], scale: float, sampling: int | None = None
) -> Tensor:
    """Pool (R, 5) regions, image number and x0 y0 x1 y1 in pixels, from (B, C, H, W) maps to (R, C, oh, ow).

    `scale` maps pixels to cells (one over the stride); the first cell's center lies half a stride in. A bin is the mean
    of `sampling` x `sampling` bilinear points, by default of one point per cell it spans, rounded up. Gradients reach
    the features, not the regions.
    """
    channels, height, width = features.shape[1:]
    rows, columns = output_size
    # (B * H * W, C): a row per cell
    table = features.permute(0, 2, 3, 1).reshape(-1, channels)
    if not len(rois):
        return torch.unflatten(table[:0], 0, (0, rows, columns)).permute(0, 3, 1, 2)
    rois = rois.detach().float()
    first_cell = rois[:, 0].long() * (height * width)
    # (R, 2) first corner and sides in cells, x before y
    corner = rois[:, 1:3] * scale - 0.5
    side = (rois[:, 3:5] - rois[:, 1:3]) * scale
    bins = side.new_tensor([columns, rows])
    points = (side / bins).ceil().clamp(min=1).long() if sampling is None else torch.full_like(side, sampling).long()
    indices, weights, counts, order = [], [], [], []
    for across, down in torch.unique(points, dim=0).tolist():
        member = ((points[:, 0] == across) & (points[:, 1] == down)).nonzero().flatten()
        # (r, ow, 2 * across) columns of cells and (r, oh, 2 * down) rows, with their weights
        column, column_weight = _taps(corner[member, 0], side[member, 0], columns, across, width)
        row, row_weight = _taps(corner[member, 1], side[member, 1], rows, down, height)
        # (r, oh, ow, 2 * down, 2 * across)
        index = row[:, :, None, :, None] * width + column[:, None, :, None, :]
        weight = row_weight[:, :, None, :, None] * column_weight[:, None, :, None, :]
        indices.append((index + first_cell[member, None, None, None, None]).flatten())
        weights.append(weight.flatten())
        counts.append(torch.full((len(member) * rows * columns,), 4 * across * down, device=rois.device))
        order.append(member)
    sizes = torch.cat(counts)
    # (R * oh * ow, C), regions in the order of the groups, then in their own
    out = functional.embedding_bag(
        torch.cat(indices),
        table,
        sizes.cumsum(0) - sizes,
        per_sample_weights=torch.cat(weights).to(table.dtype),
        mode="sum",
    )
    out = torch.unflatten(out, 0, (-1, rows, columns)).permute(0, 3, 1, 2)
    return out.index_select(0, torch.cat(order).argsort())


def _taps(corner: Tensor, side: Tensor, bins: int, points: int, cells: int) -> tuple[Tensor, Tensor]:
    """Return the two cells each sample point reads along one axis and their weights, both (r, bins, 2 * points).

    A point up to one cell beyond the map reads the edge; farther out it reads zero.
    """
    step = side / (bins * points)
    offset = torch.arange(bins * points, device=corner.device) + 0.5
    at = corner[:, None] + offset * step[:, None]
    inside = (at >= -1) & (at <= cells)
    at = at.clamp(0, cells - 1)
    low = at.floor()
    upper = at - low
    index = torch.stack([low, (low + 1).clamp(max=cells - 1)], dim=-1).long()
    weight = torch.stack([1 - upper, upper], dim=-1) * (inside[..., None] / points)
    # (r, bins * points, 2) to (r, bins, points * 2)
    return index.reshape(-1, bins, 2 * points), weight.reshape(-1, bins, 2 * points)


_SCALES = tuple(4 * 2 ** (octave / 3) for octave in range(3))
_RATIOS = (0.5, 1.0, 2.0)
_PROPOSAL_STDS = (1.0, 1.0, 1.0, 1.0)
_POSITIVE, _NEGATIVE, _SAMPLES, _PROPOSAL_SHARE = 0.7, 0.3, 256, 0.5
_PROPOSAL_OVERLAP = 0.7


class RPNHead(nn.Module):
    """The region proposal head: one convolution, then a score and a box per anchor of the pyramid and a coarser map."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.strides = (*config.strides, 2 * config.strides[-1])
        self.before, self.after = config.proposals_before, config.proposals
        self.weight = config.auxiliary_weight
        anchors = len(_SCALES) * len(_RATIOS)
        self.rpn_conv = nn.Conv2d(config.dim, config.dim, 3, padding=1)
        self.rpn_cls = nn.Conv2d(config.dim, anchors, 1)
        self.rpn_reg = nn.Conv2d(config.dim, 4 * anchors, 1)
        for layer in (self.rpn_conv, self.rpn_cls, self.rpn_reg):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(cast(Tensor, layer.bias), 0.0)

    def forward(self, maps: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Map (B, D, rows, columns) per level to (B, A_l) logits and (B, A_l, 4) deltas of its anchors."""
        logits, deltas = [], []
        for level in maps:
            features = functional.relu(self.rpn_conv(level))
            # (B, anchors * k, rows, columns) to (B, rows * columns * anchors, k)
            logits.append(self.rpn_cls(features).permute(0, 2, 3, 1).flatten(1))
            boxes = self.rpn_reg(features).permute(0, 2, 3, 1).flatten(1)
            deltas.append(torch.unflatten(boxes, 1, (-1, 4)))
        return logits, deltas

    def loss(
        self, maps: Sequence[Tensor], targets: Sequence[Targets], size: tuple[int, int]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the losses `class` and `l1` over B images of (height, width), and the (P, 4) proposals of each."""
        logits, deltas = self(maps)
        anchors = self._anchors(maps)
        flat_logits, flat_deltas, every = torch.cat(logits, dim=1), torch.cat(deltas, dim=1), torch.cat(anchors)
        by_class, by_box, count = flat_logits.new_zeros(()), flat_logits.new_zeros(()), 0
        for image, target in enumerate(targets):
            owner = assign_by_overlap(every, target.boxes, _POSITIVE, _NEGATIVE, keep_best=True)
            positives, negatives = sample(owner, _SAMPLES, _PROPOSAL_SHARE)
            chosen = torch.cat([positives, negatives])
            truth = torch.zeros(len(chosen), device=chosen.device)
            truth[: len(positives)] = 1
            by_class = by_class + functional.binary_cross_entropy_with_logits(
                flat_logits[image, chosen].float(), truth, reduction="sum"
            )
            goal = encode(every[positives], target.boxes[owner[positives]])
            by_box = by_box + (flat_deltas[image, positives].float() - goal).abs().sum()
            count += len(chosen)
        losses = {"class": by_class, "l1": by_box}
        losses = {name: self.weight * total / max(count, 1) for name, total in losses.items()}
        with torch.no_grad():
            proposals = [
                self._proposals([level[image] for level in logits], [level[image] for level in deltas], anchors, size)
                for image in range(len(targets))
            ]
        return losses, proposals

    def _anchors(self, maps: Sequence[Tensor]) -> list[Tensor]:
        shapes = [(level.shape[2], level.shape[3]) for level in maps]
        return level_anchors(shapes, self.strides, _SCALES, _RATIOS, maps[0])

    def _proposals(
        self, logits: Sequence[Tensor], deltas: Sequence[Tensor], anchors: Sequence[Tensor], size: tuple[int, int]
    ) -> Tensor:
        """Return the (P, 4) best boxes of one image from (A_l,) logits and (A_l, 4) deltas; NMS runs per level."""
        boxes, scores, levels = [], [], []
        for number, (logit, delta, anchor) in enumerate(zip(logits, deltas, anchors, strict=True)):
            best = logit.topk(min(self.before, len(logit)))
            boxes.append(decode(anchor[best.indices], delta[best.indices].float(), _PROPOSAL_STDS, size))
            scores.append(best.values.float())
            levels.append(torch.full_like(best.indices, number))
        every = torch.cat(boxes)
        # Boxes outside the image have no area left after clipping.
        real = (every[:, 2:] > every[:, :2]).all(dim=1)
        every = every[real]
        return every[nms(every, torch.cat(scores)[real], torch.cat(levels)[real], _PROPOSAL_OVERLAP, self.after)]


_SIDE = 7
_FINEST = 56
"""Regions up to twice this side are read from the finest level, then one level coarser with each doubling."""
_CONVOLUTIONS = 4
_ROI_STDS = (0.05, 0.05, 0.1, 0.1)
_ROI_OVERLAP, _ROI_SHARE = 0.5, 0.25
_GIOU_WEIGHT = 10.0


@dataclass(frozen=True)
class Positives:
    """Positives of an auxiliary head in one image: `boxes` (P, 4) with their `labels` (P,) and target `goals` (P, 4).

    `negatives` (M, 4) are boxes assigned to background. All boxes are corners in pixels.
    """

    boxes: Tensor
    labels: Tensor
    goals: Tensor
    negatives: Tensor

    def moved(self, corner: Tensor) -> "Positives":
        """Return the boxes on a canvas where the crop lies at `corner` (4,): x, y, x, y."""
        return Positives(self.boxes + corner, self.labels, self.goals + corner, self.negatives + corner)


class RoIHead(nn.Module):
    """Four convolutions and one linear layer over 7 x 7 regions; one box for all classes."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.strides, self.classes, self.samples = config.strides, config.classes, config.roi_samples
        self.shared_convs = nn.ModuleList(ConvNorm(config.dim) for _ in range(_CONVOLUTIONS))
        self.shared_fcs = nn.ModuleList([Linear(config.dim * _SIDE**2, config.roi_hidden)])
        self.fc_cls = Linear(config.roi_hidden, config.classes + 1)
        self.fc_reg = Linear(config.roi_hidden, 4)
        self.weight = config.auxiliary_weight
        for layer, std in ((self.fc_cls, 0.01), (self.fc_reg, 0.001)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, maps: Sequence[Tensor], regions: Tensor) -> tuple[Tensor, Tensor]:
        """Map (B, D, rows, columns) maps, (R, 5) regions, image first, to (R, classes + 1) logits, (R, 4) deltas."""
        features = self._aligned(maps, regions)
        for convolution in self.shared_convs:
            features = convolution(features)
        vectors = features.flatten(1)
        for linear in self.shared_fcs:
            vectors = functional.relu(linear(vectors))
        return self.fc_cls(vectors), self.fc_reg(vectors)

    def _aligned(self, maps: Sequence[Tensor], regions: Tensor) -> Tensor:
        """Pool every region from the level that fits its size: (R, D, 7, 7)."""
        side = (regions[:, 3:] - regions[:, 1:3]).clamp(min=0).prod(dim=1).sqrt()
        level = (side / _FINEST + 1e-6).log2().floor().clamp(0, len(self.strides) - 1)
        parts, order = [], []
        for number, stride in enumerate(self.strides):
            chosen = (level == number).nonzero().flatten()
            if len(chosen):
                parts.append(roi_align(maps[number], regions[chosen], (_SIDE, _SIDE), 1 / stride))
                order.append(chosen)
        # Back to the order of the regions
        return torch.cat(parts)[torch.cat(order).argsort()]

    def loss(
        self, maps: Sequence[Tensor], proposals: Sequence[Tensor], targets: Sequence[Targets]
    ) -> tuple[dict[str, Tensor], list[Positives]]:
        """Return the losses `class` and `giou` over a sample of each image's (P, 4) proposals, and the positives."""
        regions, labels, goals, positives = [], [], [], []
        for image, (proposed, target) in enumerate(zip(proposals, targets, strict=True)):
            # The objects themselves are proposals too: early in training no other proposal overlaps one.
            boxes = torch.cat([target.boxes, proposed])
            owner = assign_by_overlap(boxes, target.boxes, _ROI_OVERLAP, _ROI_OVERLAP, keep_best=False)
            found, empty = sample(owner, self.samples, _ROI_SHARE)
            chosen = torch.cat([found, empty])
            label = torch.full((len(chosen),), self.classes, dtype=torch.long, device=chosen.device)
            label[: len(found)] = target.labels[owner[found]]
            goal = target.boxes[owner[found]]
            positives.append(Positives(boxes[found], label[: len(found)], goal, boxes[empty]))
            regions.append(functional.pad(boxes[chosen], (1, 0), value=image))
            labels.append(label)
            goals.append(goal)
        region, label, goal = torch.cat(regions), torch.cat(labels), torch.cat(goals)
        if not len(region):
            zero = maps[0].sum() * 0.0
            return {"class": zero, "giou": zero}, positives
        logits, deltas = self(maps, region)
        objects = label < self.classes
        decoded = decode(region[objects, 1:], deltas[objects].float(), _ROI_STDS)
        by_class = functional.cross_entropy(logits.float(), label)
        by_overlap = (1 - paired_iou(decoded, goal)[1]).sum() / len(region)
        losses = {"class": by_class, "giou": _GIOU_WEIGHT * by_overlap}
        return {name: self.weight * value for name, value in losses.items()}, positives
