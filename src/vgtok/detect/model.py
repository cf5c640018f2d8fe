"""The whole network: encoder, pyramid, query head and the auxiliary heads that help it train.

In training images of one size run together and sizes take turns; in prediction the encoder packs all images and the
rest runs image by image. No map is ever padded, so what an image's neighbours are changes nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vgtok.detect.atss import ATSSHead
from vgtok.detect.config import DetectorConfig, Head
from vgtok.detect.deformable import View, cut
from vgtok.detect.losses import Targets
from vgtok.detect.neck import Pyramid
from vgtok.detect.nms import Prediction, best_boxes
from vgtok.detect.query_head import QueryHead
from vgtok.detect.roi import RoIHead, RPNHead
from vgtok.detect.training import LossKinds, group_losses
from vgtok.encode.dense import encode_dense
from vgtok.encode.encoder import Encoder
from vgtok.encode.packing import Crop, whole_canvas
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens

_DECODING = re.compile(r"query_head\.(?!transformer\.encoder\.|transformer\.level_embeds|downsample\.)")
"""Names of what only queries pass through; auxiliary heads read the encoded cells."""


@dataclass(frozen=True)
class SizeGroup:
    """Images of one grid: their `numbers` in the batch, `features` (b, D, rows, columns), `size` (height, width) px.

    Each shows the part at its corner (x, y) of a frame of its own (height, width) px, what shares are shares of. All
    sizes are those of grids, whole numbers of cells.
    """

    numbers: tuple[int, ...]
    features: Tensor
    size: tuple[int, int]
    frames: tuple[tuple[int, int], ...]
    corners: tuple[tuple[int, int], ...]

    @property
    def view(self) -> View:
        """How shares of the maps are shares of the frames."""
        return cut(self.corners, self.size, self.frames, self.features)


class CoDetr(nn.Module):
    """`encoder`, `neck`, `query_head`, and `rpn_head`, `roi_head`, `atss_head` where the configuration has them."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder_config())
        self.neck = Pyramid(self.encoder.config.dim, config.dim, config.strides)
        self.query_head = QueryHead(config)
        with_roi = "roi" in config.auxiliary
        self.rpn_head = RPNHead(config) if with_roi else None
        self.roi_head = RoIHead(config) if with_roi else None
        self.atss_head = ATSSHead(config) if "atss" in config.auxiliary else None

    def predict(
        self, frames: Sequence[Tensor], tokens: Sequence[Tokens], max_detections: int, head: Head = "query"
    ) -> list[Prediction]:
        """B (3, H, W) uint8 frames on the canvas with their partitions to a prediction each."""
        maps = self.encoder(frames, tokens).maps
        return self.predict_maps(maps, [(t.height, t.width) for t in tokens], max_detections, head)

    def predict_dense(self, frames: Sequence[Tensor], max_detections: int, head: Head = "query") -> list[Prediction]:
        """B (3, H, W) frames with every cell a token, as the released model runs; a prediction each."""
        maps = [encode_dense(self.encoder, frame[None]).maps[0] for frame in frames]
        return self.predict_maps(maps, [(f.shape[1], f.shape[2]) for f in frames], max_detections, head)

    def predict_maps(
        self, maps: Sequence[Tensor], sizes: Sequence[tuple[int, int]], max_detections: int, head: Head = "query"
    ) -> list[Prediction]:
        """B (D, rows, columns) feature maps of frames of (height, width) to a prediction each."""
        if head == "atss" and self.atss_head is None:
            raise InputError("head: this model was built or saved without its ATSS head; use head='query'")
        # One by one: a batch picks other kernels, which round otherwise, and where two proposals are about equal,
        # rounding decides which query each gets. Memory stays that of one image, and it is no slower.
        return [
            self._predict_map(features, size, max_detections, head) for features, size in zip(maps, sizes, strict=True)
        ]

    def _predict_map(self, features: Tensor, clipped: tuple[int, int], max_detections: int, head: Head) -> Prediction:
        """One (D, rows, columns) feature map to a prediction inside (height, width) px."""
        # A grid that reaches beyond the frame shows padding, of which the head must know; boxes are then shares of the
        # frame and not of the grid.
        padded = self.encoder.config.grid_multiple > 1
        encoded = self.query_head.encode(self.neck(features[None].contiguous()), image=clipped if padded else None)
        if head == "atss":
            assert self.atss_head is not None
            return self.atss_head.predict(self.query_head.auxiliary_maps(encoded), clipped, max_detections)
        prediction = self.query_head.decode(encoded, self.query_head.propose(encoded), None)[-1]
        size = clipped if padded else (features.shape[1] * CELL, features.shape[2] * CELL)
        return best_boxes(prediction, size, [clipped], self.config.queries, max_detections)[0]

    def loss(
        self,
        frames: Sequence[Tensor],
        tokens: Sequence[Tokens],
        targets: Sequence[Mapping[str, Tensor]],
        crops: Sequence[Crop] | None = None,
        queries: int | None = None,
        kinds: LossKinds = "all",
    ) -> dict[str, Tensor]:
        """Every weighted loss by name; targets hold (N, 4) `boxes` x0 y0 x1 y1 in canvas px and (N,) `labels`.

        Where images are parts of frames, `crops` say which; boxes stay in the image's own pixels, and `queries` may
        be fewer than a whole frame has. Where sizes differ, each size counts by its share of the images. With `kinds`
        'auxiliary' the decoder is not run, which costs less.
        """
        device = self.encoder.embedding.table.device
        objects = [
            Targets(target["boxes"].to(device, torch.float32), target["labels"].to(device, torch.long))
            for target in targets
        ]
        total: dict[str, Tensor] = {}
        maps = self.encoder(frames, tokens, crops=crops).maps
        for group in _by_size(maps, crops):
            share = len(group.numbers) / len(frames)
            losses = group_losses(self, group, [objects[n] for n in group.numbers], queries, kinds)
            for name, value in losses.items():
                total[name] = total.get(name, 0) + share * value
        return total

    def reached(self, kinds: LossKinds) -> list[nn.Parameter]:
        """The parameters that losses of these kinds have a gradient for."""
        if kinds == "all":
            return list(self.parameters())
        return [p for name, p in self.named_parameters() if not _DECODING.match(name)]

    def parts(self) -> dict[str, int]:
        """Parameters by part, the coarse tokens' fusion apart from the encoder."""
        counts = {name: sum(p.numel() for p in part.parameters()) for name, part in self.named_children()}
        fusion = self.encoder.embedding.fusion
        counts["fusion"] = 0 if fusion is None else sum(p.numel() for p in fusion.parameters())
        counts["encoder"] -= counts["fusion"]
        return counts


def _by_size(maps: Sequence[Tensor], crops: Sequence[Crop] | None = None) -> Iterator[SizeGroup]:
    """Stack (D, rows, columns) maps of equal size, in order of first appearance."""
    grids = [(features.shape[1], features.shape[2]) for features in maps]
    crops = [whole_canvas(grid) for grid in grids] if crops is None else crops
    numbers: dict[tuple[int, int], list[int]] = {}
    for number, grid in enumerate(grids):
        numbers.setdefault(grid, []).append(number)
    for grid, members in numbers.items():
        yield SizeGroup(
            tuple(members),
            torch.stack([maps[n] for n in members]),
            (grid[0] * CELL, grid[1] * CELL),
            tuple((crops[n].grid[0] * CELL, crops[n].grid[1] * CELL) for n in members),
            tuple((crops[n].x, crops[n].y) for n in members),
        )
