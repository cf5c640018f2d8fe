"""What an encoder knows of a token from its place alone, for every token a canvas can have.

Each kind of token tiles the canvas by itself, so three uniform partitions hold them all; the encoder's own code is run
on those, and what it computes becomes constants of the graph.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vgtok.encode.encoder import Encoder, PackedRoutes
from vgtok.encode.packing import pack
from vgtok.encode.placement import place
from vgtok.export.layout import SPANS, token_numbers, uniform_grids
from vgtok.tokenize.geometry import CELL, Extent
from vgtok.tokenize.tokens import Tokens


@dataclass(frozen=True)
class TokenTables:
    """Rows are token numbers: `position` (T, D), `key_bias` (T,) the logarithm of the cells a token covers.

    `rotations` has (T, head_dim / 2, 2) cosines and sines for windowed (False) and global (True) blocks, as far as the
    encoder has them and turns its queries at all.
    """

    position: Tensor
    key_bias: Tensor
    rotations: dict[bool, Tensor]


def token_tables(encoder: Encoder, extent: Extent) -> TokenTables:
    """Constants of all tokens of a canvas whose valid area is `extent`."""
    config, device = encoder.config, encoder.embedding.table.device
    total = sum(rows * columns for rows, columns in uniform_grids(extent))
    tables = TokenTables(torch.empty(total, config.dim), torch.empty(total), {})
    examples = {config.is_global(number): number for number in range(config.depth)} if config.rope else {}
    for span in SPANS:
        packing = pack([_uniform(extent, span)], config)
        placement = place(packing, config, device)
        number = torch.from_numpy(token_numbers(extent, packing.row, packing.column, packing.span))
        everyone = torch.arange(len(number), device=device)
        tables.position[number] = encoder.embedding.position(placement, everyone, span).float().cpu()
        tables.key_bias[number] = placement.covered.float().log().cpu()
        routes = PackedRoutes(packing, placement, config, None)
        for overall, block in examples.items():
            rotations = routes.of(block).rotations
            assert rotations is not None
            # ONNX has no complex numbers.
            parts = torch.view_as_real(rotations[placement.place]).cpu()
            tables.rotations.setdefault(overall, torch.empty(total, *parts.shape[1:]))[number] = parts
    return tables


def _uniform(extent: Extent, span: int) -> Tokens:
    """The partition of an extent into tokens of one size."""
    side = span * CELL
    rows, columns = extent.rows(side), extent.columns(side)
    y, x = np.divmod(np.arange(rows * columns, dtype=np.int32), np.int32(columns))
    sizes = np.full(x.size, side, dtype=np.int32)
    return Tokens(
        x * np.int32(side), y * np.int32(side), sizes, extent.height, extent.width, extent.height, extent.width
    )
