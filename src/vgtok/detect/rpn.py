"""Region proposals: nine anchors per cell say whether an object is there, and where; the RoI head reads the best."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.anchors import assign_by_overlap, level_anchors, sample
from vgtok.detect.boxes import decode, encode
from vgtok.detect.config import DetectorConfig
from vgtok.detect.losses import Targets
from vgtok.detect.suppression import nms

_SCALES = tuple(4 * 2 ** (octave / 3) for octave in range(3))
_RATIOS = (0.5, 1.0, 2.0)
_STDS = (1.0, 1.0, 1.0, 1.0)
_POSITIVE, _NEGATIVE, _SAMPLES, _SHARE = 0.7, 0.3, 256, 0.5
_OVERLAP = 0.7


class RPNHead(nn.Module):
    """One convolution, then a score and a box per anchor; strides are the pyramid's and one coarser."""

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
        """A (B, D, rows, columns) map per stride to (B, A_l) logits and (B, A_l, 4) deltas of its anchors."""
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
        """Losses `class` and `l1` over B images, and the (P, 4) proposals of each, for an image of (height, width)."""
        logits, deltas = self(maps)
        anchors = self._anchors(maps)
        flat_logits, flat_deltas, every = torch.cat(logits, dim=1), torch.cat(deltas, dim=1), torch.cat(anchors)
        by_class, by_box, count = flat_logits.new_zeros(()), flat_logits.new_zeros(()), 0
        for image, target in enumerate(targets):
            owner = assign_by_overlap(every, target.boxes, _POSITIVE, _NEGATIVE, keep_best=True)
            positives, negatives = sample(owner, _SAMPLES, _SHARE)
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
        """(P, 4) best boxes of one image, from (A_l,) logits and (A_l, 4) deltas; levels do not suppress each other."""
        boxes, scores, levels = [], [], []
        for number, (logit, delta, anchor) in enumerate(zip(logits, deltas, anchors, strict=True)):
            best = logit.topk(min(self.before, len(logit)))
            boxes.append(decode(anchor[best.indices], delta[best.indices].float(), _STDS, size))
            scores.append(best.values.float())
            levels.append(torch.full_like(best.indices, number))
        every = torch.cat(boxes)
        # What lies wholly beyond the image was cut to nothing.
        real = (every[:, 2:] > every[:, :2]).all(dim=1)
        every = every[real]
        return every[nms(every, torch.cat(scores)[real], torch.cat(levels)[real], _OVERLAP)[: self.after]]
