"""Sine codes of places and boxes: what tells queries and cells where they are."""

import math

import torch
from torch import Tensor

from vgtok.detect.deformable import Shapes
from vgtok.detect.view import View


def sine_code(values: Tensor, features: int, temperature: float) -> Tensor:
    """(...,) shares of the image to (..., features): sine and cosine in turn, at falling frequencies."""
    pairs = torch.arange(features // 2, device=values.device, dtype=values.dtype)
    angles = values[..., None] * (2 * math.pi) / temperature ** (2 * pairs / features)
    # (..., features / 2, 2), sine first in every pair
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def box_code(boxes: Tensor, features: int, order: tuple[int, int, int, int]) -> Tensor:
    """(..., 4) boxes, centre and size, to (..., 4 * features): the coordinates' codes one after another."""
    return sine_code(boxes[..., list(order)], features, 10000.0).flatten(-2)


DECODER_ORDER = (1, 0, 2, 3)
"""The decoder reads y before x; positives fed back by auxiliary heads are coded x first."""

FEEDBACK_ORDER = (0, 1, 2, 3)


def cell_codes(shapes: Shapes, features: int, view: View) -> list[Tensor]:
    """(B, rows * columns, 2 * features) of every level: row code, then column code, counted from one."""
    codes = []
    for rows, columns in shapes:
        # Ends of the cells as shares of the map, (n, 2), then of the frame, (B, n)
        down, right = (
            view.on_frame((torch.arange(1, n + 1, device=view.shift.device) / n)[:, None].expand(-1, 2))[..., axis]
            for n, axis in ((rows, 1), (columns, 0))
        )
        row_code = sine_code(down, features, 20.0)[:, :, None].expand(-1, -1, columns, -1)
        column_code = sine_code(right, features, 20.0)[:, None].expand(-1, rows, -1, -1)
        codes.append(torch.cat([row_code, column_code], dim=-1).flatten(1, 2))
    return codes


def cell_centres(shapes: Shapes, like: Tensor) -> list[Tensor]:
    """(rows * columns, 2) x, y of every level's cell centres as a share of the image."""
    centres = []
    for rows, columns in shapes:
        y, x = ((torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n for n in (rows, columns))
        centres.append(torch.cartesian_prod(y, x).flip(-1))
    return centres
