"""Maps that reach beyond their image, as those of a released Co-DETR do: what the head must know of the rest.

Padded cells run through encoder and pyramid like any other. From there on nothing reads them, and places are shares of
the image, of which every level's map shows a little more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vgtok.detect.deformable import Shapes
from vgtok.detect.position import sine_code


@dataclass(frozen=True)
class Padding:
    """`sizes` are the (rows, columns) of each level that show the image, `filled` (levels, 2) their share of the map.

    `filled` has x before y; `beyond` (S,) is true for the cells of all levels that lie outside the image.
    """

    sizes: tuple[tuple[int, int], ...]
    filled: Tensor
    beyond: Tensor

    def on_image(self, points: Sequence[Tensor]) -> list[Tensor]:
        """(n, 2) shares of each level's map as shares of the image."""
        return [part / share for part, share in zip(points, self.filled, strict=True)]

    def on_maps(self, places: Tensor) -> Tensor:
        """(..., 2) points or (..., 4) boxes as shares of the image to (..., levels, 2 or 4) shares of each map."""
        return places[..., None, :] * self.filled.repeat(1, places.shape[-1] // 2)

    def codes(self, shapes: Shapes, features: int) -> list[Tensor]:
        """(1, rows * columns, 2 * features) of every level, rows and columns counted as far as the image goes.

        A row beyond the image has the code of the last one, but every cell of a column beyond it has that of row 0.
        """
        codes = []
        for (rows, columns), (high, wide) in zip(shapes, self.sizes, strict=True):
            down, right = (
                (torch.arange(1, n + 1, device=self.beyond.device) / real).clamp(max=1)
                for n, real in ((rows, high), (columns, wide))
            )
            inside = torch.arange(columns, device=down.device) < wide, torch.arange(rows, device=down.device) < high
            # (rows, columns) shares, zero where the other axis has left the image
            by_row, by_column = down[:, None] * inside[0], right * inside[1][:, None]
            codes.append(torch.cat([sine_code(part, features, 20.0) for part in (by_row, by_column)], dim=-1))
        return [code.flatten(0, 1)[None] for code in codes]


def padding_of(image: tuple[int, int], padded: tuple[int, int], shapes: Shapes, like: Tensor) -> Padding | None:
    """The padding of levels of these shapes over an image of (height, width) px that was padded to `padded`, or None.

    A cell lies in the image if the pixel at its first corner does.
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
    """How many of the cells that divide `padded` px begin within the first `real` px."""
    return sum(place * padded // cells < real for place in range(cells))
