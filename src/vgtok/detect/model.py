"""The network: encoder, feature pyramid, query head and auxiliary heads, and its FLOPs and parameters.

In training, images of one size run together, one size after another. In prediction the encoder packs all images and the
rest runs image by image. Maps are never padded to a common size, so a result does not depend on the other images.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from vgtok.detect.atss import ATSSHead
from vgtok.detect.boxes import Prediction
from vgtok.detect.config import DetectorConfig, Head
from vgtok.detect.losses import Targets
from vgtok.detect.neck import FeaturePyramid, UpsampledConv, level_shapes
from vgtok.detect.query_head import QueryHead, best_boxes
from vgtok.detect.roi import RoIHead, RPNHead
from vgtok.detect.sites import DEFAULT_RULE, SiteRule, Sites, sites_of
from vgtok.detect.training import LossKinds, group_losses
from vgtok.detect.transformer import CropView, crop_view
from vgtok.encode.encoder import Encoder
from vgtok.encode.packing import Crop, whole_canvas
from vgtok.encode.plain import is_rewritten
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens

_DECODING = re.compile(r"query_head\.(?!transformer\.encoder\.|transformer\.level_embeds|downsample\.)")
"""Names of the parameters only queries pass through; auxiliary heads read the encoded cells."""


@dataclass(frozen=True)
class SizeGroup:
    """Images of one grid: their `numbers` in the batch, `features` (b, D, rows, columns), `size` (height, width) px.

    Each image is the crop at its corner (x, y) of a canvas of its own (height, width) px, of which shares are shares.
    All sizes are whole numbers of cells. A group with `sites` has one image.
    """

    numbers: tuple[int, ...]
    features: Tensor
    size: tuple[int, int]
    canvases: tuple[tuple[int, int], ...]
    corners: tuple[tuple[int, int], ...]
    sites: Sites | None = None

    @property
    def view(self) -> CropView:
        """Where the maps lie on the canvases."""
        return crop_view(self.corners, self.size, self.canvases, self.features)


class CoDetr(nn.Module):
    """`encoder`, `neck`, `query_head`, and `rpn_head`, `roi_head`, `atss_head` where the configuration has them."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder_config())
        self.neck = FeaturePyramid(self.encoder.config.dim, config.dim, config.strides)
        self.query_head = QueryHead(config)
        with_roi = "roi" in config.auxiliary
        self.rpn_head = RPNHead(config) if with_roi else None
        self.roi_head = RoIHead(config) if with_roi else None
        self.atss_head = ATSSHead(config) if "atss" in config.auxiliary else None

    def predict(
        self,
        canvases: Sequence[Tensor],
        tokens: Sequence[Tokens],
        max_detections: int,
        head: Head = "query",
        sparse_head: bool = False,
    ) -> list[Prediction]:
        """Return one prediction for each of B (3, H, W) uint8 canvases with their partitions."""
        maps = self.encoder(canvases, tokens).maps
        sizes = [(partition.height, partition.width) for partition in tokens]
        return self.predict_maps(maps, sizes, max_detections, head, self.sites(maps, tokens) if sparse_head else None)

    def predict_maps(
        self,
        maps: Sequence[Tensor],
        sizes: Sequence[tuple[int, int]],
        max_detections: int,
        head: Head = "query",
        sites: Sequence[Sites | None] | None = None,
    ) -> list[Prediction]:
        """Return one prediction for each of B (D, rows, columns) feature maps of canvases of (height, width).

        With the `sites` of each, the head is sparse: of the finest level it computes those positions only.
        """
        self.check_head(head)
        # One by one: batches run other kernels with other rounding, which decides between proposals of nearly equal
        # score. This also needs the memory of one image only, and is no slower.
        return [
            self.predict_heads(features, size, max_detections, (head,), chosen)[0]
            for features, size, chosen in zip(maps, sizes, sites or [None] * len(maps), strict=True)
        ]

    def predict_heads(
        self,
        features: Tensor,
        clipped: tuple[int, int],
        max_detections: int,
        heads: Sequence[Head],
        sites: Sites | None = None,
    ) -> list[Prediction]:
        """Return the prediction of each head for one (D, rows, columns) feature map, clipped to (height, width).

        What the heads share is computed once.
        """
        # A grid may reach beyond the image into padding, which the head must know; boxes are then shares of the image
        # and not of the grid.
        padded = self.encoder.config.grid_multiple > 1
        # The encoder leaves maps with channels last, as convolutions on CPUs are fastest.
        batch = features[None] if is_rewritten(features) else features[None].contiguous()
        # In half precision the neck's convolutions leave it; what the head adds up and normalizes is float32.
        levels = [level.float() for level in self.neck(batch, sites)]
        encoded = self.query_head.encode(levels, image=clipped if padded else None, sites=sites)
        size = clipped if padded else (features.shape[1] * CELL, features.shape[2] * CELL)
        predictions = []
        for head in heads:
            if head == "atss":
                assert self.atss_head is not None
                auxiliary = self.query_head.auxiliary_levels(encoded)
                predictions.append(self.atss_head.predict(auxiliary, clipped, max_detections, sites))
            else:
                boxes = self.query_head.decode(encoded, self.query_head.propose(encoded), None)[-1]
                predictions += best_boxes(boxes, size, [clipped], self.config.queries, max_detections)
        return predictions

    def sites(
        self, maps: Sequence[Tensor], tokens: Sequence[Tokens], rule: SiteRule = DEFAULT_RULE
    ) -> list[Sites | None]:
        """Return which positions of the finest level a sparse head computes, for B (D, rows, columns) maps of tokens.

        None stands for all of them.
        """
        stride = self.config.strides[0]
        shapes = [level_shapes(features.shape[1], features.shape[2], (stride,))[0] for features in maps]
        return [
            sites_of(partition, stride, shape, maps[0].device, rule)
            for partition, shape in zip(tokens, shapes, strict=True)
        ]

    def check_head(self, head: Head) -> Head:
        """Return the head's name; raise if this model has no such head."""
        if head not in get_args(Head):
            raise InputError(f"head: '{head}' is not one of {', '.join(get_args(Head))}")
        if head == "atss" and self.atss_head is None:
            raise InputError("head: this model was saved without its ATSS head; use head='query'")
        return head

    def loss(
        self,
        canvases: Sequence[Tensor],
        tokens: Sequence[Tokens],
        targets: Sequence[Mapping[str, Tensor]],
        crops: Sequence[Crop] | None = None,
        queries: int | None = None,
        kinds: LossKinds = "all",
        sparse_head: bool = False,
    ) -> dict[str, Tensor]:
        """Return every weighted loss by name; targets hold (N, 4) corner `boxes` in canvas px and (N,) `labels`.

        `crops` says which part of a canvas each image is; its boxes are in pixels of the crop, and `queries` may be
        fewer than for a whole canvas. If sizes differ, each size counts by its share of the images. With `kinds`
        'auxiliary' the decoder does not run, which costs less. With `sparse_head` neck and heads are trained as they
        then predict, image by image, because each has its own sites; each counts as a size of its own.
        """
        device = self.encoder.embedding.table.device
        objects = [
            Targets(target["boxes"].to(device, torch.float32), target["labels"].to(device, torch.long))
            for target in targets
        ]
        total: dict[str, Tensor] = {}
        maps = self.encoder(canvases, tokens, crops=crops).maps
        for group in _by_size(maps, crops, self.sites(maps, tokens) if sparse_head else None):
            share = len(group.numbers) / len(canvases)
            losses = group_losses(self, group, [objects[n] for n in group.numbers], queries, kinds)
            for name, value in losses.items():
                total[name] = total.get(name, 0) + share * value
        return total

    def reached(self, kinds: LossKinds) -> list[nn.Parameter]:
        """Return the parameters that losses of these kinds have a gradient for."""
        if kinds == "all":
            return list(self.parameters())
        return [p for name, p in self.named_parameters() if not _DECODING.match(name)]

    def parts(self) -> dict[str, int]:
        """Return the number of parameters by part, with the fusion of coarse tokens apart from the encoder."""
        counts = {name: sum(p.numel() for p in part.parameters()) for name, part in self.named_children()}
        fusion = self.encoder.embedding.fusion
        counts["fusion"] = 0 if fusion is None else sum(p.numel() for p in fusion.parameters())
        counts["encoder"] -= counts["fusion"]
        return counts


def _by_size(
    maps: Sequence[Tensor], crops: Sequence[Crop] | None = None, sites: Sequence[Sites | None] | None = None
) -> Iterator[SizeGroup]:
    """Stack (D, rows, columns) maps of equal size, in order of first appearance; those with sites stay alone."""
    grids = [(features.shape[1], features.shape[2]) for features in maps]
    crops = [whole_canvas(grid) for grid in grids] if crops is None else crops
    sites = [None] * len(maps) if sites is None else sites
    groups: dict[tuple[int, int, int], list[int]] = {}
    for number, (grid, chosen) in enumerate(zip(grids, sites, strict=True)):
        groups.setdefault((*grid, -1 if chosen is None else number), []).append(number)
    for (rows, columns, _), members in groups.items():
        yield SizeGroup(
            tuple(members),
            torch.stack([maps[n] for n in members]),
            (rows * CELL, columns * CELL),
            tuple((crops[n].grid[0] * CELL, crops[n].grid[1] * CELL) for n in members),
            tuple((crops[n].x, crops[n].y) for n in members),
            sites[members[0]],
        )


def detection_flops(
    config: DetectorConfig, rows: int, columns: int, head: Head = "query", sites: int | None = None
) -> dict[str, int]:
    """Return the FLOPs from a map of (rows, columns) cells to boxes by part, with the head that predicts.

    With `sites`, a sparse head computes so many positions of the finest level.
    """
    with torch.device("meta"):
        neck = FeaturePyramid(config.encoder_config().dim, config.dim, config.strides)
        query_head = QueryHead(config)
        anchors = ATSSHead(config)
    shapes = level_shapes(rows, columns, config.strides)
    finest, *others = (down * across for down, across in shapes)
    cells = (finest if sites is None else sites) + sum(others)
    branches = [branch for _, branch in neck.named_children()]
    shared = {
        "neck": _branch_flops(branches[0], rows, columns, sites)
        + sum(_branch_flops(branch, rows, columns) for branch in branches[1:]),
        "cells": 2 * cells * _weights(query_head.transformer.encoder),
    }
    if head == "atss":
        assert query_head.downsample is not None
        # The head also reads the coarsest level at half its resolution, rounded up.
        coarsest = -(-shapes[-1][0] // 2) * -(-shapes[-1][1] // 2)
        kernels = _weights(anchors, dimensions=4)
        halving = coarsest * _weights(query_head.downsample, dimensions=4)
        return {**shared, "anchors": 2 * ((cells + coarsest) * kernels + halving)}
    first_stage = [query_head.transformer.enc_output, query_head.cls_branches[-1], query_head.reg_branches[-1]]
    return {
        **shared,
        "proposals": 2 * cells * sum(_weights(part) for part in first_stage),
        "queries": _decoder_flops(query_head, cells, min(config.queries, cells)),
    }


def detector_parameters(config: DetectorConfig) -> dict[str, int]:
    """Return the number of parameters by part, the fusion apart, without allocating any."""
    with torch.device("meta"):
        return CoDetr(config).parts()


def _branch_flops(branch: nn.Module, rows: int, columns: int, sites: int | None = None) -> int:
    """Return the FLOPs of one branch of the pyramid; with `sites`, of so many positions after the last enlargement."""
    total = 0
    layers = list(branch.children())
    last = max((number for number, layer in enumerate(layers) if isinstance(layer, UpsampledConv)), default=0)
    for number, layer in enumerate(layers):
        if isinstance(layer, UpsampledConv):
            # Counted as the released model runs it; our four kernels take 4/9 of that.
            rows, columns = 2 * rows, 2 * columns
        elif isinstance(layer, nn.MaxPool2d) or (isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)):
            rows, columns = -(-rows // 2), -(-columns // 2)
        if isinstance(layer, nn.Conv2d):
            positions = rows * columns if sites is None or number < last else sites
            total += 2 * positions * layer.weight.numel()
    return total


def _decoder_flops(head: QueryHead, cells: int, queries: int) -> int:
    """Return the FLOPs of all decoder layers: values per cell, the rest per query, the box branch run twice."""
    decoder = head.transformer.decoder
    on_cells = sum(_weights(layer.get_submodule("cross_attention.value_proj")) for layer in decoder.layers)
    layers = len(decoder.layers)
    branches = sum(_weights(part) for part in head.cls_branches[:layers])
    branches += 2 * sum(_weights(part) for part in head.reg_branches[:layers])
    on_queries = _weights(decoder.layers) - on_cells + layers * _weights(decoder.ref_point_head) + branches
    attention = layers * 4 * queries**2 * head.config.dim
    return 2 * cells * on_cells + 2 * queries * on_queries + attention


def _weights(module: nn.Module, dimensions: int = 2) -> int:
    """Count the entries of all weight matrices, or of kernels: one multiply-add each per vector or cell."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == dimensions)
