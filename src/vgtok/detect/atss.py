"""The ATSS head: feature maps to boxes by one anchor per cell, without queries.

Its positives are chosen by the statistics of each object's nearest anchors.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.boxes import Prediction, clip, decode, to_centers
from vgtok.detect.config import ANCHOR_IOU, CANDIDATES, MIN_SCORE, SOFT_ANCHORS, DetectorConfig
from vgtok.detect.losses import PRIOR, Targets, focal
from vgtok.detect.neck import ConvNorm
from vgtok.detect.roi import BACKGROUND, Positives, level_anchors
from vgtok.detect.sites import Sites, convolve
from vgtok.encode.plain import is_plain
from vgtok.overlap import nms, paired_iou, soft_nms

_SCALE = 8.0
_STDS = (0.1, 0.1, 0.2, 0.2)
_NEAREST = 9
_GIOU_WEIGHT = 2.0
_OBJECTS_AT_ONCE = 64


class ATSSHead(nn.Module):
    """Two towers of convolutions, for classes and boxes, then logits, deltas and centerness per cell of every map."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.classes, self.weight = config.classes, config.auxiliary_weight
        self.soft = config.atss_suppression == "soft"
        self.most_candidates = CANDIDATES[config.atss_suppression]
        self.strides = (*config.strides, 2 * config.strides[-1])
        self.least = config.atss_least_cells / _SCALE
        norm = config.auxiliary_norm
        self.cls_convs = nn.ModuleList(ConvNorm(config.dim, norm) for _ in range(config.atss_convs))
        self.reg_convs = nn.ModuleList(ConvNorm(config.dim, norm) for _ in range(config.atss_convs))
        self.atss_cls = nn.Conv2d(config.dim, config.classes, 3, padding=1)
        self.atss_reg = nn.Conv2d(config.dim, 4, 3, padding=1)
        self.atss_centerness = nn.Conv2d(config.dim, 1, 3, padding=1)
        self.scales = nn.ParameterList(torch.ones(()) for _ in self.strides)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
        nn.init.constant_(cast(Tensor, self.atss_cls.bias), PRIOR)

    def forward(
        self, maps: Sequence[Tensor], sites: Sites | None = None
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Map (B, D, rows, columns) per level to (B, A_l, classes) logits, (B, A_l, 4) deltas, (B, A_l) centerness.

        With `sites`, the first map is (1, n, D), and its anchors are those of the sites.
        """
        logits, deltas, centered = [], [], []
        for number, (level, scale) in enumerate(zip(maps, self.scales, strict=True)):
            by_class, by_box = self._outputs(level) if number or sites is None else self._outputs_at(level, sites)
            logits.append(by_class)
            deltas.append(by_box[..., :4] * scale)
            centered.append(by_box[..., 4])
        return logits, deltas, centered

    def _outputs(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Map (B, D, rows, columns) to (B, rows * columns, classes) logits and (..., 5) deltas and centerness."""
        features, places = level, level
        for by_class, by_box in zip(self.cls_convs, self.reg_convs, strict=True):
            features, places = by_class(features), by_box(places)
        if is_plain():
            found = [self.atss_cls(features), torch.cat([self.atss_reg(places), self.atss_centerness(places)], dim=1)]
        else:
            found = [self.atss_cls(features), functional.conv2d(places, *self._box_kernel(), padding=1)]
        # (B, k, rows, columns) to (B, rows * columns, k)
        by_class, by_box = (part.flatten(2).transpose(1, 2) for part in found)
        return by_class, by_box

    def _outputs_at(self, level: Tensor, sites: Sites) -> tuple[Tensor, Tensor]:
        """Map the (1, n, D) values of sites to (1, n, classes) logits and (1, n, 5) deltas and centerness."""
        features, places = level[0], level[0]
        for number, pair in enumerate(zip(self.cls_convs, self.reg_convs, strict=True)):
            by_class, by_box = (cast(ConvNorm, block) for block in pair)
            if number:
                features, places = by_class.at_sites(features, sites), by_box.at_sites(places, sites)
                continue
            # Both towers start from the same values, which are gathered once.
            both = convolve(features, torch.cat([by_class.conv.weight, by_box.conv.weight]), None, sites)
            half_class, half_box = both.chunk(2, dim=1)
            features = by_class.after_convolution(half_class, sites)
            places = by_box.after_convolution(half_box, sites)
        logits = convolve(features, self.atss_cls.weight, self.atss_cls.bias, sites)
        return logits[None], convolve(places, *self._box_kernel(), sites)[None]

    def _box_kernel(self) -> tuple[Tensor, Tensor]:
        """Return (5, D, 3, 3) weights and (5,) biases: one convolution for deltas and centerness costs half of two."""
        layers = (self.atss_reg, self.atss_centerness)
        return torch.cat([layer.weight for layer in layers]), torch.cat([cast(Tensor, layer.bias) for layer in layers])

    def loss(
        self, maps: Sequence[Tensor], targets: Sequence[Targets], sites: Sites | None = None
    ) -> tuple[dict[str, Tensor], list[Positives]]:
        """Return the losses `class`, `giou` and `centerness` over B images, and the positives of each image."""
        logits, deltas, centered = (torch.cat(levels, dim=1).float() for levels in self(maps, sites))
        levels = self._anchors(maps, sites)
        anchors = torch.cat(levels)
        zero = logits.sum() * 0.0
        by_class, by_overlap, by_center, count, weight = zero, zero, zero, 0, zero
        positives = []
        for image, target in enumerate(targets):
            owner = assign_by_statistics(levels, target.boxes, self.least)
            found = (owner >= 0).nonzero().flatten()
            labels = torch.full((len(anchors),), self.classes, dtype=torch.long, device=anchors.device)
            labels[found] = target.labels[owner[found]]
            goals = target.boxes[owner[found]]
            by_class = by_class + focal(logits[image], labels).sum()
            middle = centerness(anchors[found], enlarged(goals, anchors[found], self.least))
            giou = paired_iou(decode(anchors[found], deltas[image, found], _STDS), goals)[1]
            by_overlap = by_overlap + ((1 - giou) * middle).sum()
            by_center = by_center + functional.binary_cross_entropy_with_logits(
                centered[image, found], middle, reduction="sum"
            )
            count, weight = count + len(found), weight + middle.sum()
            positives.append(Positives(anchors[found], labels[found], goals, anchors[owner < 0]))
        losses = {
            "class": by_class / max(count, 1),
            "giou": _GIOU_WEIGHT * by_overlap / weight.clamp(min=1.0),
            "centerness": by_center / max(count, 1),
        }
        return {name: self.weight * value for name, value in losses.items()}, positives

    def predict(
        self, maps: Sequence[Tensor], size: tuple[int, int], most: int, sites: Sites | None = None
    ) -> Prediction:
        """Return at most `most` boxes of one image by its (1, D, rows, columns) maps, clipped to (height, width)."""
        boxes, scores, labels = self.candidates(maps, sites)
        boxes = clip(boxes, size)
        if not self.soft:
            kept = nms(boxes, scores, labels, ANCHOR_IOU, None if is_plain() else most)[:most]
            return boxes[kept], scores[kept], labels[kept]
        kept, values = soft_nms(boxes, scores, labels, ANCHOR_IOU, MIN_SCORE)
        kept = kept[: min(most, SOFT_ANCHORS)]
        return boxes[kept], values[: len(kept)], labels[kept]

    def candidates(self, maps: Sequence[Tensor], sites: Sites | None = None) -> Prediction:
        """Return the best pairs of anchor and class of every level of one image, before clipping and suppression."""
        boxes, scores, labels = [], [], []
        levels = zip(*self(maps, sites), self._anchors(maps, sites), strict=True)
        for number, (logits, deltas, centered, anchors) in enumerate(levels):
            middle = centered[0].sigmoid()
            # (A, classes) scores; soft-NMS selects candidates before centerness is applied
            score = (logits[0].sigmoid() if self.soft else logits[0].sigmoid() * middle[:, None]).float()
            score = score.flatten() if number or sites is None else sites.ranked(score.T, 0.0).T.flatten()
            best = score.topk(min(self.most_candidates, len(score)))
            where = torch.div(best.indices, self.classes, rounding_mode="floor")
            boxes.append(decode(anchors[where], deltas[0, where].float(), _STDS))
            scores.append(best.values * middle[where].float() if self.soft else best.values)
            labels.append(best.indices % self.classes)
        return torch.cat(boxes), torch.cat(scores), torch.cat(labels)

    def _anchors(self, maps: Sequence[Tensor], sites: Sites | None = None) -> list[Tensor]:
        """Return the (A_l, 4) anchors of every level."""
        finest = [] if sites is None else [sites.shape]
        shapes = [*finest, *((level.shape[2], level.shape[3]) for level in maps[len(finest) :])]
        anchors = level_anchors(shapes, self.strides, (_SCALE,), (1.0,), maps[0])
        return anchors if sites is None else [anchors[0][sites.kept], *anchors[1:]]


def assign_by_statistics(levels: Sequence[Tensor], objects: Tensor, least: float = 0.0) -> Tensor:
    """Return the (A,) object assigned to each anchor of all (A_l, 4) levels, among (N, 4) corner boxes.

    Candidates are the nine anchors of every level nearest to an object's center. A candidate is positive if its IoU
    with the object is at least the mean plus the standard deviation of the candidates' IoUs, and its center lies inside
    the object. An anchor claimed by two objects goes to the one it overlaps more. For the second condition an object
    counts as at least `least` times the anchor's side: anchors are a cell apart, and a smaller object may lie between.
    """
    anchors = torch.cat(list(levels))
    owner = torch.full((len(anchors),), BACKGROUND, dtype=torch.long, device=anchors.device)
    best = torch.full((len(anchors),), -1.0, device=anchors.device)
    firsts = torch.tensor([0, *(len(level) for level in levels)], device=anchors.device).cumsum(0)
    for start in range(0, len(objects), _OBJECTS_AT_ONCE):
        boxes = objects[start : start + _OBJECTS_AT_ONCE]
        centers = to_centers(boxes)[:, :2]
        near = []
        for level, first in zip(levels, firsts[:-1], strict=True):
            distance = torch.cdist(centers, to_centers(level)[:, :2])
            near.append(distance.topk(min(_NEAREST, len(level)), dim=1, largest=False).indices + first)
        # (n, candidates)
        candidates = torch.cat(near, dim=1)
        overlap = paired_iou(anchors[candidates], boxes[:, None])[0]
        threshold = overlap.mean(dim=1, keepdim=True) + overlap.std(dim=1, keepdim=True)
        middle = to_centers(anchors[candidates])[..., :2]
        grown = enlarged(boxes[:, None], anchors[candidates], least)
        margin = torch.minimum(middle - grown[..., :2], grown[..., 2:] - middle).amin(dim=-1)
        row, column = ((overlap >= threshold) & (margin > 0.01)).nonzero(as_tuple=True)
        wanted, amount = candidates[row, column], overlap[row, column]
        reached = best.scatter_reduce(0, wanted, amount, "amax")
        wins = (amount == reached[wanted]) & (amount > best[wanted])
        owner[wanted[wins]] = start + row[wins]
        best = reached
    return owner


def enlarged(boxes: Tensor, anchors: Tensor, least: float) -> Tensor:
    """Grow (..., 4) corner boxes whose sides are below `least` times those of their (..., 4) anchors."""
    if not least:
        return boxes
    center, size = torch.split(to_centers(boxes), 2, dim=-1)
    half = torch.maximum(size, (anchors[..., 2:] - anchors[..., :2]) * least) / 2
    return torch.cat([center - half, center + half], dim=-1)


def centerness(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Return the (P,) centerness of (P, 4) anchors in their (P, 4) boxes: 1 at the center, 0 at the border."""
    center = to_centers(anchors)[:, :2]
    before, after = center - boxes[:, :2], boxes[:, 2:] - center
    ratio = torch.minimum(before, after) / torch.maximum(before, after).clamp(min=1e-6)
    return ratio.clamp(min=0).prod(dim=1).sqrt()
