"""A packing's arrays as tensors on a device, with the coordinates that position and RoPE read."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vgtok.encode.config import EncoderConfig
from vgtok.encode.packing import Packing


@dataclass(frozen=True)
class Placement:
    """Tensors over the N' tokens that stand for regions, in cells; see `Packing` for `place`, `prefix`, `cells`.

    `row` and `column` count in the image, `frame_row` and `frame_column` in the frame of `grid_rows` x `grid_columns`
    it may be a crop of. `centre_row` and `centre_column`, in the frame as well, are where a token reads its position:
    the middle of the first cell is 0.5.
    `members` lists, per image, the tokens of each span.
    """

    row: Tensor
    column: Tensor
    frame_row: Tensor
    frame_column: Tensor
    grid_rows: Tensor
    grid_columns: Tensor
    centre_row: Tensor
    centre_column: Tensor
    covered: Tensor
    place: Tensor
    prefix: Tensor
    cells: Tensor
    members: tuple[dict[int, Tensor], ...]


def place(packing: Packing, config: EncoderConfig, device: torch.device) -> Placement:
    """Move a packing to the device and find the point each token stands for."""
    covered_rows, covered_columns = packing.covered
    frames = np.array([crop.grid for crop in packing.crops], dtype=np.int64)[packing.image]
    corners = np.array([crop.corner for crop in packing.crops], dtype=np.int64)[packing.image]
    frame_row, frame_column = packing.row + corners[:, 0], packing.column + corners[:, 1]
    if config.position == "corner":
        centre_row, centre_column = frame_row + 0.5, frame_column + 0.5
    else:
        centre_row, centre_column = frame_row + covered_rows / 2, frame_column + covered_columns / 2

    def tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return Placement(
        row=tensor(packing.row),
        column=tensor(packing.column),
        frame_row=tensor(frame_row),
        frame_column=tensor(frame_column),
        grid_rows=tensor(frames[:, 0]),
        grid_columns=tensor(frames[:, 1]),
        centre_row=tensor(centre_row),
        centre_column=tensor(centre_column),
        covered=tensor(covered_rows * covered_columns),
        place=tensor(packing.place),
        prefix=tensor(packing.prefix),
        cells=tensor(packing.cells),
        members=tuple(
            {
                int(span): tensor(np.flatnonzero((packing.image == number) & (packing.span == span)))
                for span in np.unique(packing.span[packing.image == number])
            }
            for number in range(len(packing.grids))
        ),
    )
