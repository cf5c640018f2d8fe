"""The absolute position table read at any point of an image, by the bicubic rule that resizes it to a dense grid."""

import torch
from torch import Tensor
from torch.nn import functional

_SHARPNESS = -0.75
"""The cubic kernel's free parameter in torch's own bicubic resizing, which dense models are run with."""


def read_table(table: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Read an (R, C, D) table at (N,) points given as shares of the image, 0 to 1: (N, D).

    At the centres of a grid's cells this is `interpolate(mode="bicubic", align_corners=False)` to that grid.
    """
    rows, columns, dim = table.shape
    row_index, row_weight = _taps(row, rows)
    column_index, column_weight = _taps(column, columns)
    # (N, 4, 4) taps flattened to (N, 16) rows of the flat table
    index = (row_index[:, :, None] * columns + column_index[:, None, :]).flatten(1)
    weight = (row_weight[:, :, None] * column_weight[:, None, :]).flatten(1)
    # A bag per token sums its sixteen weighted rows without ever holding (N, 16, D).
    return functional.embedding_bag(
        index, table.reshape(rows * columns, dim), per_sample_weights=weight.to(table.dtype), mode="sum"
    )


def _taps(share: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Four table indices and their cubic weights per point, both (N, 4); beyond the edge the edge repeats."""
    source = share.double() * size - 0.5
    below = source.floor()
    offsets = torch.arange(-1, 3, device=share.device)
    distance = (source[:, None] - (below[:, None] + offsets)).abs()
    near = ((_SHARPNESS + 2) * distance - (_SHARPNESS + 3)) * distance * distance + 1
    far = ((_SHARPNESS * distance - 5 * _SHARPNESS) * distance + 8 * _SHARPNESS) * distance - 4 * _SHARPNESS
    weight = torch.where(distance <= 1, near, far)
    index = (below.long()[:, None] + offsets).clamp(0, size - 1)
    return index, weight
