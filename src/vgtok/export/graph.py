"""The whole network in a form whose shapes depend on canvas and token count alone: what is traced into a graph.

All weights are those of the detector's own modules.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.heads import Head
from vgtok.detect.model import CoDetr
from vgtok.detect.postprocess import Prediction, candidates
from vgtok.encode.encoder import Encoder
from vgtok.export.embedding import EmbeddingGraph
from vgtok.export.layout import Bucket
from vgtok.export.routes import GlobalRoute, WindowRoute
from vgtok.export.tables import token_tables
from vgtok.tokenize.geometry import CELL, Extent


class DetectorGraph(nn.Module):
    """A frame and the arrays of its partition to the candidates that enter suppression."""

    def __init__(self, model: CoDetr, extent: Extent, buckets: tuple[Bucket, ...], head: Head) -> None:
        super().__init__()
        self.encoder = EncoderGraph(model.encoder, extent, buckets)
        self.head = HeadGraph(model, extent, head)

    def forward(
        self,
        frame: Tensor,
        valid: Tensor,
        number: Tensor,
        cells: Tensor,
        occupant: Tensor | None = None,
        weight: Tensor | None = None,
        slot: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arrays of `graph_inputs` to (K, 4) boxes x0 y0 x1 y1 in canvas px, (K,) scores and (K,) labels.

        The fourth is the (1, D, rows, columns) feature map between encoder and head.
        """
        features = self.encoder(frame, valid, number, cells, occupant, weight, slot)
        return (*self.head(features), features)


class HeadGraph(nn.Module):
    """Pyramid and the head that predicts."""

    def __init__(self, model: CoDetr, extent: Extent, head: Head) -> None:
        super().__init__()
        self.model, self.extent, self.head = model, extent, head

    def forward(self, features: Tensor) -> Prediction:
        """(1, D, rows, columns) to the (K, 4) boxes, (K,) scores and (K,) labels that enter suppression."""
        head = self.model.query_head
        encoded = head.encode(self.model.neck(features))
        if self.head == "atss":
            assert self.model.atss_head is not None
            return self.model.atss_head.candidates(head.auxiliary_maps(encoded))
        prediction = head.decode(encoded, head.propose(encoded), None)[-1]
        size = (self.extent.rows(CELL) * CELL, self.extent.columns(CELL) * CELL)
        return candidates(prediction.logits[0], prediction.boxes[0], size, self.model.config.queries)


class EncoderGraph(nn.Module):
    """The packed encoder over numbered tokens."""

    key_bias: Tensor

    def __init__(self, encoder: Encoder, extent: Extent, buckets: tuple[Bucket, ...]) -> None:
        super().__init__()
        tables = token_tables(encoder, extent)
        self.encoder, self.extent, self.buckets = encoder, extent, buckets
        self.embedding = EmbeddingGraph(encoder.embedding, extent, tables.position)
        self.register_buffer("key_bias", tables.key_bias)
        for overall, rotations in tables.rotations.items():
            self.register_buffer(_rotations_name(overall), rotations)

    def forward(
        self,
        frame: Tensor,
        valid: Tensor,
        number: Tensor,
        cells: Tensor,
        occupant: Tensor | None,
        weight: Tensor | None,
        slot: Tensor | None,
    ) -> Tensor:
        """The arrays of `graph_inputs` to a (1, D, rows, columns) map."""
        config = self.encoder.config
        sequence = self.embedding(frame, valid, number)
        # Prefix tokens count once.
        bias = functional.pad(self.key_bias[number], (config.prefix, 0)) if config.proportional else None
        overall = GlobalRoute(self._rotations(number, overall=True), bias)
        inside = None
        if occupant is not None and weight is not None and slot is not None:
            inside = WindowRoute(self._rotations(number, overall=False), self.buckets, occupant, weight, slot)
        for place, block in enumerate(self.encoder.blocks):
            sequence = block(sequence, overall if config.is_global(place) else inside)
        # (rows * columns, D) to (1, D, rows, columns)
        dense = torch.unflatten(
            self.encoder.out_norm(sequence)[cells], 0, (self.extent.rows(CELL), self.extent.columns(CELL))
        )
        return dense.permute(2, 0, 1)[None]

    def _rotations(self, number: Tensor, *, overall: bool) -> Tensor | None:
        """(P + N, head_dim / 2, 2) cosines and sines of the (N,) numbers; prefix tokens are not turned."""
        table = getattr(self, _rotations_name(overall), None)
        if table is None:
            return None
        still = torch.tensor([1.0, 0.0]).expand(self.encoder.config.prefix, table.shape[1], 2)
        return torch.cat([still, table[number]]) if len(still) else table[number]


def _rotations_name(overall: bool) -> str:
    return "global_rotations" if overall else "window_rotations"
