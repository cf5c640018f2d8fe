"""The detector as a module of static shapes that ONNX can express.

Tokens enter by number: every token of every size a canvas can have is a row of constant tables.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.detect.boxes import Prediction
from vgtok.detect.config import Head
from vgtok.detect.model import CoDetr
from vgtok.detect.query_head import candidates
from vgtok.detect.sites import MaskedSites, Sites
from vgtok.encode.coarse import resampling_matrix
from vgtok.encode.embed import Embedding, Fusion, lay_out
from vgtok.encode.encoder import Attention, Encoder, PackedRoutes, Route
from vgtok.encode.packing import pack
from vgtok.encode.spread import Spread
from vgtok.export.description import SPANS, Bucket, token_numbers, uniform_grids
from vgtok.tokenize.geometry import CELL, ROOT, Extent
from vgtok.tokenize.tokens import Tokens


@dataclass(frozen=True)
class TokenTables:
    """Constants per token number: `position` (T, D), `key_bias` (T,) the logarithm of the cells a token covers.

    `rotations` has (T, head_dim / 2, 2) cosines and sines for windowed (False) and global (True) blocks, if the encoder
    has such blocks and rotates its queries.
    """

    position: Tensor
    key_bias: Tensor
    rotations: dict[bool, Tensor]


def token_tables(encoder: Encoder, extent: Extent) -> TokenTables:
    """Return the constants of all tokens of a canvas with this valid area."""
    config, device = encoder.config, encoder.embedding.table.device
    total = sum(rows * columns for rows, columns in uniform_grids(extent))
    tables = TokenTables(torch.empty(total, config.dim), torch.empty(total), {})
    examples = {config.is_global(number): number for number in range(config.depth)} if config.rope else {}
    for span in SPANS:
        packing = pack([_uniform(extent, span)], config)
        layout = lay_out(packing, config, device)
        number = torch.from_numpy(token_numbers(extent, packing.row, packing.column, packing.span))
        everyone = torch.arange(len(number), device=device)
        tables.position[number] = encoder.embedding.position(layout, everyone, span).float().cpu()
        tables.key_bias[number] = layout.covered.float().log().cpu()
        routes = PackedRoutes(packing, layout, config, None)
        for overall, block in examples.items():
            rotations = routes.of(block).rotations
            assert rotations is not None
            # ONNX has no complex numbers.
            parts = torch.view_as_real(rotations[layout.slot]).cpu()
            tables.rotations.setdefault(overall, torch.empty(total, *parts.shape[1:]))[number] = parts
    return tables


def _uniform(extent: Extent, span: int) -> Tokens:
    """Return the partition of an extent into tokens of one size."""
    side = span * CELL
    rows, columns = extent.rows(side), extent.columns(side)
    y, x = np.divmod(np.arange(rows * columns, dtype=np.int32), np.int32(columns))
    sizes = np.full(x.size, side, dtype=np.int32)
    return Tokens(
        x * np.int32(side), y * np.int32(side), sizes, extent.height, extent.width, extent.height, extent.width
    )


class EmbeddingGraph(nn.Module):
    """Projection, fusion and prefix of an embedding over all tokens of a canvas; `position` is (T, D)."""

    mean: Tensor
    std: Tensor
    position: Tensor

    def __init__(self, embedding: Embedding, extent: Extent, position: Tensor) -> None:
        super().__init__()
        self.embedding, self.extent = embedding, extent
        config = embedding.config
        self.register_buffer("mean", torch.tensor(config.mean))
        self.register_buffer("std", torch.tensor(config.std))
        self.register_buffer("position", position)
        for span in SPANS[1:]:
            down = resampling_matrix(span, config.resampling, CELL)
            self.register_buffer(f"down{span}", down)
            # Across, pixels are interleaved with their three channels: (48 span, 48).
            self.register_buffer(f"across{span}", torch.kron(down, torch.eye(3)).T.contiguous())

    def forward(self, frame: Tensor, valid: Tensor, number: Tensor) -> Tensor:
        """Embed the (N,) numbered tokens of an (H, W, 3) uint8 canvas of whole roots, `valid` (2,) px: (P + N, D)."""
        pixels = self._normalized(frame, valid)
        rows, columns = self.extent.root_rows * ROOT // CELL, self.extent.root_columns * ROOT // CELL
        # Patches are (16, 48): rows of pixels, channels innermost, as in the canvas.
        cells = pixels.reshape(rows, CELL, columns, 3 * CELL).transpose(1, 2).flatten(2)
        patches = [self._real(cells, 1)]
        for span in SPANS[1:]:
            down, across = self.get_buffer(f"down{span}"), self.get_buffer(f"across{span}")
            # (rows / span, 16 span, 48 columns) to (rows / span, 16, columns / span, 48)
            lower = down @ pixels.reshape(rows // span, span * CELL, columns * 3 * CELL)
            narrower = lower.reshape(rows // span, CELL, columns // span, span * 3 * CELL) @ across
            patches.append(self._real(narrower.transpose(1, 2).flatten(2), span))
        vectors = _projected(self.embedding.projection, torch.cat(patches)[number]) + self.position[number]
        if self.embedding.fusion is not None:
            vectors = vectors + self._fused(self.embedding.fusion, cells)[number]
        return torch.cat([self.embedding.prefix, vectors]) if self.embedding.config.prefix else vectors

    def _normalized(self, frame: Tensor, valid: Tensor) -> Tensor:
        """Return (H, W, 3) normalized floats, zero beyond the valid area; the last cells repeat beyond the grid."""
        height, width = frame.shape[:2]
        inside_rows, inside_columns = torch.arange(height) < valid[0], torch.arange(width) < valid[1]
        # Channels stay interleaved, (H, 3 W): a last dimension of three is slow to compute on.
        scale = (inside_columns[:, None] / self.std).flatten()
        rows = (frame.reshape(height, -1).float() - self.mean.repeat(width)) * scale * inside_rows[:, None]
        pixels = rows.reshape(height, width, 3)
        for dimension, count in enumerate((self.extent.rows(CELL), self.extent.columns(CELL))):
            place = np.arange(frame.shape[dimension])
            if place.size > count * CELL:
                repeated = np.where(place < count * CELL, place, (count - 1) * CELL + place % CELL)
                pixels = pixels.index_select(dimension, torch.from_numpy(repeated))
        return pixels

    def _fused(self, fusion: Fusion, cells: Tensor) -> Tensor:
        """Map (rows, columns, 768) cells to what fusion adds to all tokens, (T, D); tokens of one cell get zero."""
        base = _projected(fusion.projection, cells)
        rows, columns, dim = base.shape
        added = []
        for span, grid in zip(SPANS, uniform_grids(self.extent), strict=True):
            if str(span) not in fusion.stages:
                added.append(base.new_zeros(grid[0] * grid[1], dim))
                continue
            # (rows / span, span, columns / span, span, D) to (n, span, span, D)
            under = base.reshape(rows // span, span, columns // span, span, dim).transpose(1, 2).flatten(0, 1)
            fused = torch.unflatten(fusion.stages[str(span)](under), 0, (rows // span, columns // span))
            added.append(self._real(fused, span))
        return torch.cat(added)

    def _real(self, grid: Tensor, span: int) -> Tensor:
        """Select the tokens of one span with a valid pixel: (rows, columns, C) over whole roots to (n, C)."""
        return grid[: self.extent.rows(span * CELL), : self.extent.columns(span * CELL)].flatten(0, 1)


def _projected(projection: nn.Linear, patches: Tensor) -> Tensor:
    """Apply a projection of (3, 16, 16) patches to patches of (..., 16 * 16 * 3)."""
    weight = torch.unflatten(projection.weight, 1, (3, CELL, CELL)).permute(0, 2, 3, 1).flatten(1)
    return functional.linear(patches, weight, projection.bias)


_QUERIES_AT_ONCE = 1024
"""Queries per chunk: shorter chunks are slower, longer ones only need more memory."""


class GraphRoute(Route):
    """Routes of inference, without stochastic depth."""

    def survivors(self, branch: Tensor, rate: float) -> Tensor:
        """Return (N, 1) ones for the (N, D) branch."""
        return torch.ones_like(branch[:, :1])


@dataclass(frozen=True)
class GlobalRoute(GraphRoute):
    """Attention over all tokens: `rotations` (N, head_dim / 2, 2), `bias` (N,) on the logits of each key."""

    rotations: Tensor | None
    bias: Tensor | None

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """Map (N, D) to (N, D)."""
        # 3 of (heads, N, head_dim)
        q, k, v = _projected_heads(attention, x, self.rotations).permute(1, 2, 0, 3).unbind(0)
        # With a dynamic N the number of chunks is unknown.
        chunks = torch.split(q, _QUERIES_AT_ONCE, dim=1) if isinstance(q.shape[1], int) else (q,)
        read = torch.cat([_attended(chunk, k, v, self.bias) for chunk in chunks], dim=1)
        return attention.merge(read.transpose(0, 1))


@dataclass(frozen=True)
class WindowRoute(GraphRoute):
    """Attention inside windows of slots: `occupant`, `weight` (S,) and `slot` (N,) as `graph_inputs` has them."""

    rotations: Tensor | None
    buckets: tuple[Bucket, ...]
    occupant: Tensor
    weight: Tensor
    slot: Tensor

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """Map (N, D) to (N, D)."""
        # A padded cell is zero before the projection, so its query, key and value are the bias: row N.
        padded = torch.unflatten(attention.bias(), 0, (1, 3, attention.heads, -1))
        # (S, 3, heads, head_dim), window after window
        slots = torch.cat([_projected_heads(attention, x, self.rotations), padded])[self.occupant]
        sizes = [bucket.windows * bucket.slots for bucket in self.buckets]
        parts = zip(self.buckets, torch.split(slots, sizes), torch.split(self.weight.log(), sizes), strict=True)
        read = []
        for bucket, part, bias in parts:
            shape = (bucket.windows, bucket.slots)
            # 3 of (windows, heads, slots, head_dim)
            q, k, v = torch.unflatten(part, 0, shape).permute(2, 0, 3, 1, 4).unbind(0)
            found = _attended(q, k, v, torch.unflatten(bias, 0, shape)[:, None, None])
            read.append(found.transpose(1, 2).flatten(0, 1))
        return attention.merge(torch.cat(read)[self.slot])


def _projected_heads(attention: Attention, x: Tensor, rotations: Tensor | None) -> Tensor:
    """Map (N, D) to (N, 3, heads, head_dim) queries, keys and values, the first two rotated."""
    projected = functional.linear(x, attention.qkv.weight, attention.bias())
    qkv = torch.unflatten(projected, 1, (3, attention.heads, -1))
    if rotations is None:
        return qkv
    # (N, 2, heads, head_dim / 2) real and imaginary parts, (N, 1, 1, head_dim / 2) cosines and sines
    real, imaginary = torch.unflatten(qkv[:, :2], -1, (-1, 2)).unbind(-1)
    cosine, sine = rotations[:, None, None].unbind(-1)
    turned = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1).flatten(-2)
    return torch.cat([turned, qkv[:, 2:]], dim=1)


def _attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attend from (..., Q, head_dim) to (..., K, head_dim); `bias` is broadcast to the (..., Q, K) logits."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        logits = logits + bias
    return torch.matmul(logits.softmax(dim=-1), v)


class HeadGraph(nn.Module):
    """The feature pyramid and the head that predicts."""

    def __init__(self, model: CoDetr, extent: Extent, head: Head) -> None:
        super().__init__()
        self.model, self.extent, self.head = model, extent, head

    def forward(self, features: Tensor, sites: Sites | None) -> Prediction:
        """Map (1, D, rows, columns) to the (K, 4) boxes, (K,) scores and (K,) labels that enter suppression."""
        head = self.model.query_head
        encoded = head.encode(self.model.neck(features, sites), sites=sites)
        if self.head == "atss":
            assert self.model.atss_head is not None
            return self.model.atss_head.candidates(head.auxiliary_levels(encoded), sites)
        prediction = head.decode(encoded, head.propose(encoded), None)[-1]
        size = (self.extent.rows(CELL) * CELL, self.extent.columns(CELL) * CELL)
        return candidates(prediction.logits[0], prediction.boxes[0], size, self.model.config.queries)


class DetectorGraph(nn.Module):
    """A canvas and the arrays of its partition to the candidates that enter suppression."""

    key_bias: Tensor
    first_numbers: Tensor

    def __init__(
        self, model: CoDetr, extent: Extent, buckets: tuple[Bucket, ...], head: Head, sparse_head: bool = False
    ) -> None:
        super().__init__()
        encoder = model.encoder
        stride = model.config.strides[0]
        # Positions of the finest level along a cell, if some of them may be no sites
        self.repeat = CELL // stride if sparse_head and stride < CELL else None
        tables = token_tables(encoder, extent)
        self.encoder, self.extent, self.buckets = encoder, extent, buckets
        self.embedding = EmbeddingGraph(encoder.embedding, extent, tables.position)
        self.head = HeadGraph(model, extent, head)
        self.register_buffer("key_bias", tables.key_bias)
        counts = [rows * columns for rows, columns in uniform_grids(extent)]
        # First numbers of the two coarse sizes
        self.register_buffer("first_numbers", torch.tensor(counts[:2]).cumsum(0))
        for overall, rotations in tables.rotations.items():
            self.register_buffer(_rotations_name(overall), rotations)

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
        """Return (K, 4) corner boxes in canvas px, (K,) scores, (K,) labels and the (1, D, rows, columns) feature map.

        The arguments are the arrays of `graph_inputs`.
        """
        config = self.encoder.config
        sequence = self.embedding(frame, valid, number)
        # Prefix tokens count once.
        bias = functional.pad(self.key_bias[number], (config.prefix, 0)) if config.proportional else None
        overall = GlobalRoute(self._rotations(number, overall=True), bias)
        inside = None
        if occupant is not None and weight is not None and slot is not None:
            inside = WindowRoute(self._rotations(number, overall=False), self.buckets, occupant, weight, slot)
        for index, block in enumerate(self.encoder.blocks):
            sequence = block(sequence, overall if config.is_global(index) else inside)
        sequence = self.encoder.out_norm(sequence)
        every = (
            sequence[cells]
            if self.encoder.spread is None
            else self._spread(self.encoder.spread, sequence, cells, number)
        )
        # (rows * columns, D) to (1, D, rows, columns)
        dense = torch.unflatten(every, 0, (self.extent.rows(CELL), self.extent.columns(CELL)))
        features = dense.permute(2, 0, 1)[None]
        return (*self.head(features, self._sites(number, cells)), features)

    def _sites(self, number: Tensor, cells: Tensor) -> Sites | None:
        """Return the sites of the finest level: all positions but those in unsplit roots."""
        if self.repeat is None:
            return None
        rows, columns = self.extent.rows(CELL), self.extent.columns(CELL)
        split = (self._numbers(number)[cells] < self.first_numbers[1]).reshape(rows, 1, columns, 1)
        fine = split.expand(rows, self.repeat, columns, self.repeat)
        return MaskedSites.of(fine.reshape(rows * self.repeat, columns * self.repeat))

    def _numbers(self, number: Tensor) -> Tensor:
        """Return the (P + N,) numbers of a sequence by those of its tokens; prefix tokens cover no cell."""
        return functional.pad(number, (self.encoder.config.prefix, 0))

    def _spread(self, spread: Spread, sequence: Tensor, cells: Tensor, number: Tensor) -> Tensor:
        """Return the (rows * columns, D) vectors of all cells for a (P + N, D) sequence.

        Every token is spread over the cells of every size, of which each cell then picks one: shapes stay static.
        """
        row, column = np.divmod(
            np.arange(self.extent.rows(CELL) * self.extent.columns(CELL)), self.extent.columns(CELL)
        )
        first, vectors = 0, [torch.zeros_like(sequence)[:, None]]
        size = (self._numbers(number)[cells][:, None] >= self.first_numbers).sum(dim=1)
        place = torch.zeros_like(cells)
        for order, span in enumerate(SPANS[1:], start=1):
            first += vectors[-1].shape[1]
            vectors.append(spread.stages[str(span)](sequence))
            within = torch.from_numpy(row % span * span + column % span)
            place = torch.where(size == order, first + within, place)
        added = torch.cat(vectors, dim=1)
        return sequence[cells] + added.flatten(0, 1)[cells * added.shape[1] + place]

    def _rotations(self, number: Tensor, *, overall: bool) -> Tensor | None:
        """Return (P + N, head_dim / 2, 2) cosines and sines of the (N,) numbers; prefix tokens are not rotated."""
        table = getattr(self, _rotations_name(overall), None)
        if table is None:
            return None
        still = torch.tensor([1.0, 0.0]).expand(self.encoder.config.prefix, table.shape[1], 2)
        return torch.cat([still, table[number]]) if len(still) else table[number]


def _rotations_name(overall: bool) -> str:
    return "global_rotations" if overall else "window_rotations"
