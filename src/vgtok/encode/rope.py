"""Rotary position: coordinates of tokens to rotations, and rotations applied to queries and keys.

Half of a head's width turns with the row, half with the column; neighbouring channels are the real and imaginary part
of one rotating number. Coordinates are continuous, so a coarse token turns by the centre of its region.
"""

import torch
from torch import Tensor

REFERENCE_GRID = 16.0
"""Cells per side of the grid the frequencies were trained on: any other grid or window is stretched onto it."""


def rotation(row: Tensor, column: Tensor, head_dim: int) -> Tensor:
    """(N,) coordinates as shares of the grid, from 0 to below 1, to (N, head_dim / 2) unit complex numbers."""
    exponent = torch.arange(0, head_dim // 2, 2, device=row.device, dtype=torch.float32) / (head_dim // 2)
    frequency = 10000.0**-exponent
    # (N, head_dim / 4) each; rows fill the first half of a head, columns the second.
    angles = [share[:, None] * REFERENCE_GRID * frequency for share in (row, column)]
    angle = torch.cat(angles, dim=1)
    return torch.polar(torch.ones_like(angle), angle)


def rotate(values: Tensor, rotations: Tensor) -> Tensor:
    """Turn (..., N, C, heads, head_dim) by (N, head_dim / 2) rotations; half precision is turned in fp32."""
    # (..., N, C, heads, head_dim / 2) complex
    pairs = torch.view_as_complex(torch.unflatten(values.float(), -1, (-1, 2)))
    turned = pairs * rotations[:, None, None, :]
    return torch.view_as_real(turned).flatten(-2).to(values.dtype)
