"""Encoder and decoder layers of the query head: deformable attention among cells, and of queries over cells.

Post-norm throughout, no dropout. The decoder refines a box per query from layer to layer and hands out both what the
next layer reads (detached) and what losses read (not detached): a layer is then trained through the one after it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vgtok.detect.boxes import inverse_sigmoid
from vgtok.detect.config import DetectorConfig
from vgtok.detect.deformable import DECODER_ORDER, QUERIES_AT_ONCE, DeformableAttention, Padding, Shapes, View, box_code


class EncoderLayer(nn.Module):
    """Cells read cells of every level, then pass through an MLP."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.attention = DeformableAttention(config.dim, config.heads, config.levels, config.points)
        self.ffn = _ffn(config)
        self.norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(2))

    def forward(
        self, cells: Tensor, codes: Tensor, centres: Tensor, shapes: Shapes, beyond: Tensor | None = None
    ) -> Tensor:
        """(B, S, D) cells with (1 or B, S, D) codes at (S, 2) or (S, levels, 2) centres to (B, S, D)."""
        reference = centres.expand(len(cells), *centres.shape)
        cells = self.norms[0](cells + self.attention(cells + codes, reference, cells, shapes, beyond))
        # In chunks: the hidden layer of 196,416 cells would be the largest tensor of all.
        chunks = [self.norms[1](chunk + self.ffn(chunk)) for chunk in torch.split(cells, QUERIES_AT_ONCE, dim=1)]
        return torch.cat(chunks, dim=1)


class DecoderLayer(nn.Module):
    """Queries attend to each other, read cells around their boxes, then pass through an MLP."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.self_attention = nn.MultiheadAttention(config.dim, config.heads, batch_first=True)
        self.cross_attention = DeformableAttention(config.dim, config.heads, config.levels, config.points)
        self.ffn = _ffn(config)
        self.norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(3))

    def forward(
        self,
        query: Tensor,
        code: Tensor,
        boxes: Tensor,
        memory: Tensor,
        shapes: Shapes,
        hidden: Tensor | None,
        beyond: Tensor | None = None,
    ) -> Tensor:
        """(B, Q, D) queries with (B, Q, D) codes read (B, S, D) memory around their boxes on the map: (B, Q, D).

        Boxes are (B, Q, 4), or (B, Q, levels, 4). `hidden` is (B, Q, Q), true where a query (row) must not see another
        (column), `beyond` (S,) true for cells outside the image.
        """
        placed = query + code
        if hidden is not None:
            # (B, Q, Q) to (B * heads, Q, Q)
            hidden = hidden.repeat_interleave(self.self_attention.num_heads, dim=0)
        among = self.self_attention(placed, placed, query, attn_mask=hidden, need_weights=False)[0]
        query = self.norms[0](query + among)
        query = self.norms[1](query + self.cross_attention(query + code, boxes, memory, shapes, beyond))
        refined: Tensor = self.norms[2](query + self.ffn(query))
        return refined


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self, cells: Tensor, codes: Tensor, centres: Tensor, shapes: Shapes, beyond: Tensor | None = None
    ) -> Tensor:
        """(B, S, D) cells with (1 or B, S, D) codes at (S, 2) or (S, levels, 2) centres to (B, S, D)."""
        for layer in self.layers:
            cells = layer(cells, codes, centres, shapes, beyond)
        return cells


class Decoder(nn.Module):
    """A stack of decoder layers that refine boxes as they go."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.ref_point_head = nn.Sequential(
            nn.Linear(2 * config.dim, config.dim), nn.ReLU(), nn.Linear(config.dim, config.dim)
        )
        self.norm = nn.LayerNorm(config.dim)

    def forward(
        self,
        query: Tensor,
        boxes: Tensor,
        memory: Tensor,
        shapes: Shapes,
        view: View,
        refine: Sequence[nn.Module],
        hidden: Tensor | None,
        padding: Padding | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(B, Q, D) queries at (B, Q, 4) boxes; `refine` predicts a step of the box from a layer's output.

        Returns the normed (B, Q, D) output of every layer and the (B, Q, 4) boxes each of them started from.
        """
        outputs, starts = [], []
        for layer, step in zip(self.layers, refine, strict=False):
            starts.append(boxes)
            boxes = boxes.detach()
            code = self.ref_point_head(box_code(boxes, query.shape[2] // 2, DECODER_ORDER))
            if padding is None:
                query = layer(query, code, view.on_map(boxes), memory, shapes, hidden)
            else:
                query = layer(query, code, padding.on_maps(boxes), memory, shapes, hidden, padding.beyond)
            outputs.append(self.norm(query))
            boxes = (step(query) + inverse_sigmoid(boxes)).sigmoid()
        return outputs, starts


def _ffn(config: DetectorConfig) -> nn.Sequential:
    return nn.Sequential(nn.Linear(config.dim, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.dim))
