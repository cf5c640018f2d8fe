"""The transformer of the query head: encoder and decoder layers, and positions on the maps.

Post-norm throughout, no dropout. The decoder refines one box per query from layer to layer. It returns both what the
next layer reads (detached) and what the losses read (not detached), so a layer is also trained through the next one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from vgtok.detect.boxes import inverse_sigmoid
from vgtok.detect.config import DetectorConfig
from vgtok.detect.deformable import DeformableAttention, Reader, Shapes, queries_at_once
from vgtok.detect.sites import Sites
from vgtok.encode.plain import Linear


@dataclass(frozen=True)
class CropView:
    """Where the maps of B crops lie on their canvases: share of the canvas = `shift` + `scale` * share of the map.

    `shift` and `scale` are (B, 1, 2), x before y. For whole canvases they are (1, 1, 2), zero and one.
    """

    shift: Tensor
    scale: Tensor

    def on_canvas(self, points: Tensor) -> Tensor:
        """Convert (S, 2) shares of the map to (B, S, 2) shares of the canvases."""
        return self.shift + self.scale * points

    def on_map(self, boxes: Tensor) -> Tensor:
        """Convert (B, Q, 4) boxes, center and size as shares of the canvases, to shares of the map."""
        return torch.cat([(boxes[..., :2] - self.shift) / self.scale, boxes[..., 2:] / self.scale], dim=-1)


def whole_view(like: Tensor) -> CropView:
    """Return the view of maps of whole canvases, on the device of `like`."""
    return CropView(torch.zeros(1, 1, 2, device=like.device), torch.ones(1, 1, 2, device=like.device))


def crop_view(
    corners: Sequence[tuple[int, int]], size: tuple[int, int], canvases: Sequence[tuple[int, int]], like: Tensor
) -> CropView:
    """Return the view of B crops of (height, width) px, each at its (x, y) on a canvas of its own (height, width)."""
    # (B, 1, 2), width before height
    extent = torch.tensor(canvases, device=like.device, dtype=torch.float32).flip(1)[:, None]
    shift = torch.tensor(corners, device=like.device, dtype=torch.float32)[:, None] / extent
    return CropView(shift, torch.tensor([size[1], size[0]], device=like.device) / extent)


def sine_code(values: Tensor, features: int, temperature: float) -> Tensor:
    """Encode (...,) shares of the image as (..., features): alternating sine and cosine, at decreasing frequencies."""
    pairs = torch.arange(features // 2, device=values.device, dtype=values.dtype)
    angles = values[..., None] * (2 * math.pi) / temperature ** (2 * pairs / features)
    # (..., features / 2, 2), sine first in every pair
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def box_code(boxes: Tensor, features: int, order: tuple[int, int, int, int]) -> Tensor:
    """Encode (..., 4) boxes, center and size, as (..., 4 * features): the coordinates' codes in the given order."""
    return sine_code(boxes[..., list(order)], features, 10000.0).flatten(-2)


DECODER_ORDER = (1, 0, 2, 3)
"""The decoder encodes y before x."""

_CODES_KEPT = 2**23
"""Most values of the codes that are kept between images."""

AUXILIARY_ORDER = (0, 1, 2, 3)
"""Positives of auxiliary heads are encoded x before y."""


def cell_codes(shapes: Shapes, features: int, view: CropView) -> list[Tensor]:
    """Return (B, rows * columns, 2 * features) per level: row code, then column code, counted from one."""
    codes = []
    for rows, columns in shapes:
        # Ends of the cells as shares of the map, (n, 2), then of the canvas, (B, n)
        down, right = (
            view.on_canvas((torch.arange(1, n + 1, device=view.shift.device) / n)[:, None].expand(-1, 2))[..., axis]
            for n, axis in ((rows, 1), (columns, 0))
        )
        row_code = sine_code(down, features, 20.0)[:, :, None].expand(-1, -1, columns, -1)
        column_code = sine_code(right, features, 20.0)[:, None].expand(-1, rows, -1, -1)
        codes.append(torch.cat([row_code, column_code], dim=-1).flatten(1, 2))
    return codes


def whole_codes(shapes: tuple[tuple[int, int], ...], features: int) -> list[Tensor]:
    """Return the `cell_codes` of whole canvases on the CPU, kept for the last size unless they need over 32 MB."""
    cells = sum(rows * columns for rows, columns in shapes)
    make = _kept_codes if cells * 2 * features <= _CODES_KEPT else _kept_codes.__wrapped__
    return make(shapes, features)


@lru_cache(maxsize=1)
def _kept_codes(shapes: tuple[tuple[int, int], ...], features: int) -> list[Tensor]:
    return cell_codes(shapes, features, whole_view(torch.empty(0)))


def cell_centers(shapes: Shapes, like: Tensor) -> list[Tensor]:
    """Return the (rows * columns, 2) x, y of each level's cell centers as shares of the image."""
    centers = []
    for rows, columns in shapes:
        y, x = ((torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n for n in (rows, columns))
        centers.append(torch.cartesian_prod(y, x).flip(-1))
    return centers


@dataclass(frozen=True)
class Padding:
    """How far the image reaches on padded maps.

    `sizes` are the (rows, columns) of each level inside the image, `filled` (levels, 2) their share of the map, x
    before y. `beyond` (S,) is true for the cells of all levels outside the image.
    """

    sizes: tuple[tuple[int, int], ...]
    filled: Tensor
    beyond: Tensor

    def on_image(self, points: Sequence[Tensor]) -> list[Tensor]:
        """Convert (n, 2) shares of each level's map to shares of the image."""
        return [part / share for part, share in zip(points, self.filled, strict=True)]

    def on_maps(self, places: Tensor) -> Tensor:
        """Convert (..., 2) points or (..., 4) boxes from shares of the image to (..., levels, 2 or 4) of maps."""
        return places[..., None, :] * self.filled.repeat(1, places.shape[-1] // 2)

    def codes(self, shapes: Shapes, features: int) -> list[Tensor]:
        """Return (1, rows * columns, 2 * features) per level, rows and columns counted up to the end of the image.

        As in the released model, a row beyond the image has the code of the last row, but every cell of a column beyond
        it has that of row 0.
        """
        codes = []
        for (rows, columns), (high, wide) in zip(shapes, self.sizes, strict=True):
            down, right = (
                (torch.arange(1, n + 1, device=self.beyond.device) / real).clamp(max=1)
                for n, real in ((rows, high), (columns, wide))
            )
            inside = torch.arange(columns, device=down.device) < wide, torch.arange(rows, device=down.device) < high
            # (rows, columns) shares, zero where the other axis is beyond the image
            by_row, by_column = down[:, None] * inside[0], right * inside[1][:, None]
            codes.append(torch.cat([sine_code(part, features, 20.0) for part in (by_row, by_column)], dim=-1))
        return [code.flatten(0, 1)[None] for code in codes]


def padding_of(image: tuple[int, int], padded: tuple[int, int], shapes: Shapes, like: Tensor) -> Padding | None:
    """Return the padding of levels over an `image` of (height, width) px padded to `padded`; None if it needs none.

    A cell is inside the image if the pixel at its top left corner is.
    """
    if image == padded:
        return None
    sizes = tuple(
        (_cells_inside(rows, padded[0], image[0]), _cells_inside(columns, padded[1], image[1]))
        for rows, columns in shapes
    )
    filled = [(wide / columns, high / rows) for (rows, columns), (high, wide) in zip(shapes, sizes, strict=True)]
    beyond = []
    for (rows, columns), (high, wide) in zip(shapes, sizes, strict=True):
        mask = torch.ones(rows, columns, dtype=torch.bool, device=like.device)
        mask[:high, :wide] = False
        beyond.append(mask.flatten())
    return Padding(sizes, torch.tensor(filled, device=like.device, dtype=like.dtype), torch.cat(beyond))


def _cells_inside(cells: int, padded: int, real: int) -> int:
    """Return how many of the cells that divide `padded` px start within the first `real` px."""
    return sum(place * padded // cells < real for place in range(cells))


class EncoderLayer(nn.Module):
    """Deformable attention among the cells of all levels, then an MLP."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.attention = DeformableAttention(config.dim, config.heads, config.levels, config.points)
        self.ffn = _ffn(config)
        self.norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(2))

    def forward(
        self,
        cells: Tensor,
        codes: Tensor,
        centers: Tensor,
        shapes: Shapes,
        beyond: Tensor | None = None,
        sites: Sites | None = None,
    ) -> Tensor:
        """Map (B, S, D) cells with (1 or B, S, D) codes at (S, 2) or (S, levels, 2) centers to (B, S, D)."""
        read = self.attention.reader(cells, shapes, beyond, sites)
        codes, centers = codes.expand(len(cells), -1, -1), centers.expand(len(cells), *centers.shape)
        # In chunks: the hidden layer of 196,416 cells would be the largest tensor of the model.
        length = queries_at_once(cells)
        parts = zip(*(torch.split(part, length, dim=1) for part in (cells, codes, centers)), strict=True)
        return torch.cat([self._mixed(chunk, chunk_codes, places, read) for chunk, chunk_codes, places in parts], dim=1)

    def _mixed(self, cells: Tensor, codes: Tensor, centers: Tensor, read: Reader) -> Tensor:
        """Map a chunk of (B, q, D) cells to the same shape."""
        cells = self.norms[0](cells + read(cells + codes, centers))
        mixed: Tensor = self.norms[1](cells + self.ffn(cells))
        return mixed


class DecoderLayer(nn.Module):
    """Self-attention among queries, deformable attention to the cells around their boxes, then an MLP."""

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
        sites: Sites | None = None,
    ) -> Tensor:
        """Return (B, Q, D): (B, Q, D) queries with (B, Q, D) codes after reading (B, S, D) memory around their boxes.

        Boxes are shares of the map, (B, Q, 4) or (B, Q, levels, 4). `hidden` (B, Q, Q) is true where a query (row) must
        not attend to another (column), `beyond` (S,) for cells outside the image.
        """
        placed = query + code
        if hidden is not None:
            # (B, Q, Q) to (B * heads, Q, Q)
            hidden = hidden.repeat_interleave(self.self_attention.num_heads, dim=0)
        among = self.self_attention(placed, placed, query, attn_mask=hidden, need_weights=False)[0]
        query = self.norms[0](query + among)
        query = self.norms[1](query + self.cross_attention(query + code, boxes, memory, shapes, beyond, sites))
        refined: Tensor = self.norms[2](query + self.ffn(query))
        return refined


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self,
        cells: Tensor,
        codes: Tensor,
        centers: Tensor,
        shapes: Shapes,
        beyond: Tensor | None = None,
        sites: Sites | None = None,
    ) -> Tensor:
        """Map (B, S, D) cells with (1 or B, S, D) codes at (S, 2) or (S, levels, 2) centers to (B, S, D)."""
        for layer in self.layers:
            cells = layer(cells, codes, centers, shapes, beyond, sites)
        return cells


class Decoder(nn.Module):
    """A stack of decoder layers, each refining the boxes of the one before."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.ref_point_head = nn.Sequential(
            Linear(2 * config.dim, config.dim), nn.ReLU(), Linear(config.dim, config.dim)
        )
        self.norm = nn.LayerNorm(config.dim)

    def forward(
        self,
        query: Tensor,
        boxes: Tensor,
        memory: Tensor,
        shapes: Shapes,
        view: CropView,
        refine: Sequence[nn.Module],
        hidden: Tensor | None,
        padding: Padding | None = None,
        sites: Sites | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Decode (B, Q, D) queries at (B, Q, 4) boxes; `refine` predicts the step of a box from a layer's output.

        Return the normalized (B, Q, D) output of every layer and the (B, Q, 4) boxes each layer started from.
        """
        outputs, starts = [], []
        for layer, step in zip(self.layers, refine, strict=False):
            starts.append(boxes)
            boxes = boxes.detach()
            code = self.ref_point_head(box_code(boxes, query.shape[2] // 2, DECODER_ORDER))
            places = view.on_map(boxes) if padding is None else padding.on_maps(boxes)
            beyond = None if padding is None else padding.beyond
            query = layer(query, code, places, memory, shapes, hidden, beyond, sites)
            outputs.append(self.norm(query))
            boxes = (step(query) + inverse_sigmoid(boxes)).sigmoid()
        return outputs, starts


def _ffn(config: DetectorConfig) -> nn.Sequential:
    return nn.Sequential(Linear(config.dim, config.hidden), nn.ReLU(), Linear(config.hidden, config.dim))
