"""The RoI head: proposals to classes and boxes, by features aligned to each; its positives become decoder queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.anchors import assign_by_overlap, sample
from vgtok.detect.boxes import decode, paired_iou
from vgtok.detect.config import DetectorConfig
from vgtok.detect.losses import Targets
from vgtok.detect.norms import ConvNorm
from vgtok.detect.roi_align import roi_align

_SIDE = 7
_FINEST = 56
"""Regions up to twice this side are read from the finest map, then a level coarser with each doubling."""
_CONVOLUTIONS = 4
_STDS = (0.05, 0.05, 0.1, 0.1)
_OVERLAP, _SHARE = 0.5, 0.25
_GIOU_WEIGHT = 10.0


@dataclass(frozen=True)
class Positives:
    """Boxes of one image an auxiliary head answers for: `boxes` (P, 4), the `labels` (P,) and `goals` (P, 4) of each.

    `negatives` (M, 4) are boxes it was shown that answer for nothing. All boxes are corners in pixels.
    """

    boxes: Tensor
    labels: Tensor
    goals: Tensor
    negatives: Tensor

    def moved(self, corner: Tensor) -> "Positives":
        """The same boxes in a frame where the image lies at `corner` (4,): x, y, x, y."""
        return Positives(self.boxes + corner, self.labels, self.goals + corner, self.negatives + corner)


class RoIHead(nn.Module):
    """Four convolutions and one linear layer over 7 x 7 regions; one box for all classes."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.strides, self.classes, self.samples = config.strides, config.classes, config.roi_samples
        self.shared_convs = nn.ModuleList(ConvNorm(config.dim) for _ in range(_CONVOLUTIONS))
        self.shared_fcs = nn.ModuleList([nn.Linear(config.dim * _SIDE**2, config.roi_hidden)])
        self.fc_cls = nn.Linear(config.roi_hidden, config.classes + 1)
        self.fc_reg = nn.Linear(config.roi_hidden, 4)
        self.weight = config.auxiliary_weight
        for layer, std in ((self.fc_cls, 0.01), (self.fc_reg, 0.001)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, maps: Sequence[Tensor], regions: Tensor) -> tuple[Tensor, Tensor]:
        """(B, D, rows, columns) maps and (R, 5) regions, image first, to (R, classes + 1) logits, (R, 4) deltas."""
        features = self._aligned(maps, regions)
        for convolution in self.shared_convs:
            features = convolution(features)
        vectors = features.flatten(1)
        for linear in self.shared_fcs:
            vectors = functional.relu(linear(vectors))
        return self.fc_cls(vectors), self.fc_reg(vectors)

    def _aligned(self, maps: Sequence[Tensor], regions: Tensor) -> Tensor:
        """(R, D, 7, 7): every region from the level that suits its size."""
        side = (regions[:, 3:] - regions[:, 1:3]).clamp(min=0).prod(dim=1).sqrt()
        level = (side / _FINEST + 1e-6).log2().floor().clamp(0, len(self.strides) - 1)
        parts, order = [], []
        for number, stride in enumerate(self.strides):
            chosen = (level == number).nonzero().flatten()
            if len(chosen):
                parts.append(roi_align(maps[number], regions[chosen], (_SIDE, _SIDE), 1 / stride))
                order.append(chosen)
        # Back to the regions' own order
        return torch.cat(parts)[torch.cat(order).argsort()]

    def loss(
        self, maps: Sequence[Tensor], proposals: Sequence[Tensor], targets: Sequence[Targets]
    ) -> tuple[dict[str, Tensor], list[Positives]]:
        """Losses `class` and `giou` over a sample of B images' (P, 4) proposals, and the positives of each image."""
        regions, labels, goals, positives = [], [], [], []
        for image, (proposed, target) in enumerate(zip(proposals, targets, strict=True)):
            # The objects themselves join: early on no proposal would overlap one.
            boxes = torch.cat([target.boxes, proposed])
            owner = assign_by_overlap(boxes, target.boxes, _OVERLAP, _OVERLAP, keep_best=False)
            found, empty = sample(owner, self.samples, _SHARE)
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
        decoded = decode(region[objects, 1:], deltas[objects].float(), _STDS)
        by_class = functional.cross_entropy(logits.float(), label)
        by_overlap = (1 - paired_iou(decoded, goal)[1]).sum() / len(region)
        losses = {"class": by_class, "giou": _GIOU_WEIGHT * by_overlap}
        return {name: self.weight * value for name, value in losses.items()}, positives
