"""The query head: feature pyramid to a set of boxes, by an encoder over cells and a decoder over queries.

Every encoded cell proposes a box, and the best become the decoder's first boxes. In training, noised ground truth and
the positives of auxiliary heads are further groups of queries in the same decoder pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from vgtok.detect.boxes import Prediction, clip, inverse_sigmoid, to_corners
from vgtok.detect.config import MIN_SCORE, QUERY_IOU, DetectorConfig, Norm
from vgtok.detect.deformable import QUERIES_AT_ONCE, Shapes
from vgtok.detect.losses import PRIOR, QueryGroups, SetPrediction
from vgtok.detect.neck import map_norm
from vgtok.detect.sites import Sites
from vgtok.detect.transformer import (
    AUXILIARY_ORDER,
    CropView,
    Decoder,
    Encoder,
    Padding,
    box_code,
    cell_centers,
    cell_codes,
    padding_of,
    whole_codes,
    whole_view,
)
from vgtok.encode.plain import Linear, is_rewritten
from vgtok.overlap import soft_nms


@dataclass(frozen=True)
class Encoded:
    """Encoded cells of all levels: `memory` (B, S, D), `shapes` the (rows, columns) per level, `view` their place.

    `padding` is set if the maps reach beyond the image; the maps then show a whole canvas. With `sites`, which are of
    one image, memory has those of the finest level only.
    """

    memory: Tensor
    shapes: Shapes
    view: CropView
    padding: Padding | None = None
    sites: Sites | None = None

    def levels(self) -> list[Tensor]:
        """Return a (B, D, rows, columns) view per level; with `sites`, the first is (1, n, D)."""
        sizes = [rows * columns for rows, columns in self.shapes]
        if self.sites is not None:
            sizes[0] = len(self.sites)
        parts = list(torch.split(self.memory, sizes, dim=1))
        # (B, rows * columns, D) to (B, D, rows, columns)
        return [
            part if self.sites is not None and not level else torch.unflatten(part.transpose(1, 2), 2, shape)
            for level, (part, shape) in enumerate(zip(parts, self.shapes, strict=True))
        ]


class QueryTransformer(nn.Module):
    """Encoder, decoder, and the learned parts around them: level and query embeddings, the first stage's projection."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        dim = config.dim
        self.level_embeds = nn.Parameter(torch.empty(config.levels, dim))
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.enc_output = Linear(dim, dim)
        self.enc_output_norm = nn.LayerNorm(dim)
        self.query_embed = nn.Embedding(config.queries, dim)
        self.aux_pos_trans = nn.ModuleDict({name: Linear(2 * dim, dim) for name in config.auxiliary})
        self.aux_pos_trans_norm = nn.ModuleDict({name: nn.LayerNorm(dim) for name in config.auxiliary})
        nn.init.normal_(self.level_embeds)

    def auxiliary_content(self, head: str, boxes: Tensor) -> Tensor:
        """Return the (B, P, D) decoder queries of (B, P, 4) positives of an auxiliary head, by its name."""
        # Anchors may reach beyond the image; their codes must not.
        inside = inverse_sigmoid(boxes, eps=1e-5).sigmoid()
        code = box_code(inside, self.query_embed.embedding_dim // 2, AUXILIARY_ORDER)
        query: Tensor = self.aux_pos_trans_norm[head](self.aux_pos_trans[head](code))
        return query


class QueryHead(nn.Module):
    """Classes and boxes of queries; one pair of branches per decoder layer and one for the first stage."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = QueryTransformer(config)
        branches = config.decoder_layers + 1
        self.cls_branches = nn.ModuleList(Linear(config.dim, config.classes) for _ in range(branches))
        self.reg_branches = nn.ModuleList(_box_branch(config.dim) for _ in range(branches))
        self.label_embedding = nn.Embedding(config.classes, config.dim)
        self.downsample = _downsample(config.dim, config.auxiliary_norm) if config.auxiliary else None
        for branch in self.cls_branches:
            nn.init.constant_(cast(nn.Linear, branch).bias, PRIOR)

    def encode(
        self,
        levels: Sequence[Tensor],
        view: CropView | None = None,
        image: tuple[int, int] | None = None,
        sites: Sites | None = None,
    ) -> Encoded:
        """Encode one (B, D, rows, columns) map per level; with `sites`, the first is (1, n, D).

        `view` places crops on their canvases [default: whole canvases]. `image` (height, width) is given if the maps
        may reach beyond the image.
        """
        maps = levels if sites is None else levels[1:]
        shapes = [*([] if sites is None else [sites.shape]), *((level.shape[2], level.shape[3]) for level in maps)]
        # (B, D, rows, columns) to (B, S, D)
        flat = [level.flatten(2).transpose(1, 2) for level in maps]
        cells = torch.cat(flat if sites is None else [levels[0], *flat], dim=1)
        stride = self.config.strides[0]
        padded = shapes[0][0] * stride, shapes[0][1] * stride
        padding = None if image is None else padding_of(image, padded, shapes, cells)
        features = self.config.dim // 2
        if padding is not None:
            codes = padding.codes(shapes, features)
        elif view is None and is_rewritten(cells):
            codes = whole_codes(tuple(shapes), features)
        else:
            codes = cell_codes(shapes, features, whole_view(cells) if view is None else view)
        if sites is not None:
            codes = [codes[0].index_select(1, sites.kept), *codes[1:]]
        embeds = self.transformer.level_embeds
        code = torch.cat([part.to(cells.dtype) + level for part, level in zip(codes, embeds, strict=True)], dim=1)
        center = torch.cat(cell_centers(shapes, cells))
        if padding is not None:
            center = padding.on_maps(torch.cat(padding.on_image(cell_centers(shapes, cells))))
        if sites is not None:
            center = sites.chosen(center)
        beyond = None if padding is None else padding.beyond
        memory = self.transformer.encoder(cells, code, center, shapes, beyond, sites)
        return Encoded(memory, shapes, whole_view(cells) if view is None else view, padding, sites)

    def auxiliary_levels(self, encoded: Encoded) -> list[Tensor]:
        """Return what auxiliary heads read: the encoded levels and a map of half the coarsest one's resolution."""
        assert self.downsample is not None
        levels = encoded.levels()
        coarsest = levels[-1]
        if len(levels) == 1 and encoded.sites is not None:
            coarsest = encoded.sites.map(coarsest)
        return [*levels, self.downsample(coarsest)]

    def propose(self, encoded: Encoded, queries: int | None = None) -> SetPrediction:
        """Return the boxes of the best cells, one per query, or of all cells if there are fewer."""
        memory = encoded.memory
        first = _first_boxes(encoded).to(memory.dtype)
        inside = ((first > 0.01) & (first < 0.99)).all(dim=-1, keepdim=True)
        if encoded.padding is not None:
            beyond = encoded.padding.beyond
            inside = inside & ~(beyond if encoded.sites is None else encoded.sites.chosen(beyond))[:, None]
        # A first box outside the image has no finite logits; its proposal ends in the far corner.
        start = torch.where(inside, inverse_sigmoid(first, eps=1e-6), torch.inf)
        logits, steps = [], []
        for cells, valid in zip(
            torch.split(memory, QUERIES_AT_ONCE, dim=1), torch.split(inside, QUERIES_AT_ONCE, dim=1), strict=True
        ):
            features = self.transformer.enc_output_norm(self.transformer.enc_output(cells * valid))
            logits.append(self.cls_branches[-1](features))
            steps.append(self.reg_branches[-1](features))
        scores, boxes = torch.cat(logits, dim=1), (torch.cat(steps, dim=1) + start).sigmoid()
        count = min(queries or self.config.queries, memory.shape[1])
        certain = scores.amax(dim=-1)
        certain = certain if encoded.sites is None else encoded.sites.ranked(certain, -torch.inf)
        best = certain.topk(count, dim=1).indices[..., None]
        return SetPrediction(torch.take_along_dim(scores, best, dim=1), torch.take_along_dim(boxes, best, dim=1))

    def decode(self, encoded: Encoded, proposals: SetPrediction, groups: QueryGroups | None) -> list[SetPrediction]:
        """Return one prediction per layer for the proposals, followed by the queries of `groups` in training."""
        # The first stage learns from its own loss alone.
        boxes = proposals.boxes.detach()
        query = self.transformer.query_embed.weight[self._ranks(boxes)].expand(len(boxes), -1, -1)
        hidden = None
        if groups is not None:
            query, boxes = torch.cat([query, groups.content], dim=1), torch.cat([boxes, groups.boxes], dim=1)
            hidden = groups.hidden(proposals.boxes.shape[1])
        outputs, starts = self.transformer.decoder(
            query,
            boxes,
            encoded.memory,
            encoded.shapes,
            encoded.view,
            list(self.reg_branches),
            hidden,
            encoded.padding,
            encoded.sites,
        )
        return [
            SetPrediction(classify(output), (step(output) + inverse_sigmoid(start)).sigmoid())
            for classify, step, output, start in zip(
                self.cls_branches, self.reg_branches, outputs, starts, strict=False
            )
        ]

    def _ranks(self, boxes: Tensor) -> Tensor:
        """Return the (n,) query of each of n (B, n, 4) proposals, best first.

        If there are fewer proposals than queries, as in crops, they are spread over all queries; in training with a
        random offset, so that every query is trained.
        """
        count, offset = boxes.shape[1], torch.rand(()) if self.training else torch.zeros(())
        ranks = (torch.arange(count) + offset) * (self.config.queries / count)
        return ranks.long().clamp(max=self.config.queries - 1).to(boxes.device)


def best_boxes(
    prediction: SetPrediction, size: tuple[int, int], clipped: Sequence[tuple[int, int]], count: int, most: int
) -> list[Prediction]:
    """Return (N, 4) corner boxes in pixels, (N,) scores and (N,) labels per image, at most `most`, best first.

    Predicted boxes are shares of `size` (height, width) and are clipped to each image's own size in `clipped`. `count`
    pairs of query and class enter suppression.
    """
    results = []
    for logits, shares, image in zip(prediction.logits, prediction.boxes, clipped, strict=True):
        boxes, scores, labels = candidates(logits, shares, size, count)
        boxes = clip(boxes, image)
        kept, values = soft_nms(boxes, scores, labels, QUERY_IOU, MIN_SCORE)
        results.append((boxes[kept[:most]], values[:most], labels[kept[:most]]))
    return results


def candidates(logits: Tensor, shares: Tensor, size: tuple[int, int], count: int) -> Prediction:
    """Return the best `count` pairs of query and class, of (Q, classes) logits and (Q, 4) boxes as shares of `size`.

    Boxes are in pixels of that (height, width), not yet clipped.
    """
    scores = logits.float().sigmoid().flatten()
    best = scores.topk(min(count, len(scores)))
    query = torch.div(best.indices, logits.shape[1], rounding_mode="floor")
    scale = shares.new_tensor([size[1], size[0], size[1], size[0]])
    return (to_corners(shares[query]) * scale).float(), best.values, best.indices % logits.shape[1]


def _first_boxes(encoded: Encoded) -> Tensor:
    """Return the (B, S, 4) initial boxes of all cells; each level's are twice as large as those of the level before."""
    boxes = []
    points = cell_centers(encoded.shapes, encoded.view.shift)
    if encoded.padding is not None:
        points = encoded.padding.on_image(points)
    for level, centers in enumerate(points):
        placed = encoded.view.on_canvas(centers)
        boxes.append(torch.cat([placed, torch.full_like(placed, 0.05 * 2**level)], dim=-1))
    every = torch.cat(boxes, dim=1)
    return every if encoded.sites is None else encoded.sites.chosen(every, dim=1)


def _box_branch(dim: int) -> nn.Sequential:
    branch = nn.Sequential(Linear(dim, dim), nn.ReLU(), Linear(dim, dim), nn.ReLU(), last := Linear(dim, 4))
    # Initially boxes are their references.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return branch


def _downsample(dim: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(dim, dim, 3, stride=2, padding=1), map_norm(dim, norm))
