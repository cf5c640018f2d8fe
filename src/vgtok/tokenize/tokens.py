"""The partition of a canvas: position and size of every token, as a structure of arrays.

Tokens are listed root by root in reading order and in Z-order inside each 64-px root: the order of a depth-first walk.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.tokenize.canvas import to_source
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent, children, z_order
from vgtok.tokenize.split import Nodes

if TYPE_CHECKING:
    from PIL import Image

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Tokens:
    """A strict partition of one canvas.

    `x`, `y` are (N,) int32 top-left corners on the canvas and `sizes` the (N,) int32 sides, 16, 32 or 64. The
    valid area is `height` x `width` px; tokens may reach beyond it into padding, but none lies wholly there. `data`
    (R, C) says which 64-px roots hold data, None if all do; the others have no tokens.
    """

    x: NDArray[np.int32]
    y: NDArray[np.int32]
    sizes: NDArray[np.int32]
    height: int
    width: int
    source_height: int
    source_width: int
    data: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return int(self.sizes.size)

    @cached_property
    def extent(self) -> Extent:
        """The valid area, in pixels, cells and roots."""
        return Extent(self.height, self.width, self.data)

    @property
    def boxes(self) -> NDArray[np.int32]:
        """(N, 4) int32 x0 y0 x1 y1 on the canvas."""
        return np.stack([self.x, self.y, self.x + self.sizes, self.y + self.sizes], axis=1)

    @property
    def source_boxes(self) -> NDArray[np.float64]:
        """(N, 4) x0 y0 x1 y1 in image coordinates, clipped to the image."""
        return to_source(self.boxes, (self.height, self.width), (self.source_height, self.source_width))

    @property
    def dense(self) -> int:
        """Tokens of the dense 16-px grid over the same area."""
        return self.extent.dense

    @property
    def retained(self) -> float:
        """Tokens as a share of the dense grid."""
        return len(self) / self.dense

    def counts(self) -> dict[int, int]:
        """Return the number of tokens of each size."""
        return {size: int((self.sizes == size).sum()) for size in (CELL, NODE, ROOT)}

    def cell_sizes(self) -> NDArray[np.int32]:
        """Return the side of the token over each valid 16-px cell, (rows, columns); 0 where there is none."""
        grid = np.zeros(self.extent.grid_shape(CELL), dtype=np.int32)
        for size in (CELL, NODE, ROOT):
            chosen = self.sizes == size
            rows, columns = self.y[chosen] // CELL, self.x[chosen] // CELL
            for down in range(size // CELL):
                for right in range(size // CELL):
                    grid[rows + down, columns + right] = size
        return grid[: self.extent.rows(CELL), : self.extent.columns(CELL)]

    def validate(self) -> None:
        """Raise InputError unless the tokens cover every valid cell once, each on the grid of its size."""
        if not np.isin(self.sizes, (CELL, NODE, ROOT)).all():
            raise InputError("tokens: sizes other than 16, 32 and 64")
        if (self.x % self.sizes).any() or (self.y % self.sizes).any() or (self.x < 0).any() or (self.y < 0).any():
            raise InputError("tokens: a token does not lie on the grid of its own size")
        if (self.x >= self.width).any() or (self.y >= self.height).any():
            raise InputError("tokens: a token lies wholly in padding or outside the canvas")
        covered = np.zeros(self.extent.grid_shape(CELL), dtype=np.int64)
        for x, y, size in zip(self.x, self.y, self.sizes, strict=True):
            covered[y // CELL : (y + size) // CELL, x // CELL : (x + size) // CELL] += 1
        valid = covered[: self.extent.rows(CELL), : self.extent.columns(CELL)]
        times = self.extent.valid(CELL)[: self.extent.rows(CELL), : self.extent.columns(CELL)]
        if (valid != times).any():
            row, column = np.argwhere(valid != times)[0]
            expected = "once" if times[row, column] else "0 times: it holds no data"
            raise InputError(
                f"tokens: cell at row {row}, column {column} is covered {valid[row, column]} times, not {expected}"
            )

    def crop(self, x: int, y: int, height: int, width: int) -> "Tokens":
        """Return the tokens of a crop with its corner on a 64-px root, cut at the edge of the valid area.

        The crop counts as an image of its own.
        """
        if x % ROOT or y % ROOT or not (0 <= x < self.width and 0 <= y < self.height):
            raise InputError(f"crop: its corner ({x}, {y}) does not lie on a {ROOT}-px root of the canvas")
        height, width = min(height, self.height - y), min(width, self.width - x)
        if (height % ROOT and y + height < self.height) or (width % ROOT and x + width < self.width):
            raise InputError(f"crop: {width} x {height} px cut through {ROOT}-px roots")
        inside = (self.x >= x) & (self.x < x + width) & (self.y >= y) & (self.y < y + height)
        shift = np.int32(x), np.int32(y)
        roots = slice(y // ROOT, -(-(y + height) // ROOT)), slice(x // ROOT, -(-(x + width) // ROOT))
        return Tokens(
            self.x[inside] - shift[0],
            self.y[inside] - shift[1],
            self.sizes[inside],
            height,
            width,
            height,
            width,
            None if self.data is None else self.data[roots],
        )

    def overlay(self, image: Any) -> "Image.Image":
        """Draw the partition over `image`, anything the tokenizer reads, at the size of the image."""
        from vgtok.show.overlay import draw_tokens

        return draw_tokens(self, image)

    def to_dict(self) -> dict[str, Any]:
        """Return the partition as plain values for JSON."""
        return {
            "format": "vgtok-tokens",
            "version": FORMAT_VERSION,
            "canvas": {"width": self.width, "height": self.height},
            "source": {"width": self.source_width, "height": self.source_height},
            "tokens": len(self),
            "dense": self.dense,
            "retained": self.retained,
            "counts": {str(size): count for size, count in self.counts().items()},
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "size": self.sizes.tolist(),
            **({} if self.data is None else {"data": self.data.astype(int).tolist()}),
        }

    def to_json(self) -> str:
        """Return the partition as JSON text."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def to_arrays(self) -> dict[str, NDArray[np.int32]]:
        """Return the arrays of an npz file: x, y, size, and the sizes of canvas and source as (height, width)."""
        return {
            "x": self.x,
            "y": self.y,
            "size": self.sizes,
            "canvas": np.array([self.height, self.width], dtype=np.int32),
            "source": np.array([self.source_height, self.source_width], dtype=np.int32),
            **({} if self.data is None else {"data": self.data.astype(np.int32)}),
        }


def tokens_from_splits(splits: Nodes, extent: Extent, source_size: tuple[int, int]) -> Tokens:
    """List the leaves of the splits: 16 px under a split node, else 32 px under a split root, else 64 px."""
    fine = children(splits.middle)
    size_of_cell = np.where(fine, CELL, np.where(children(children(splits.coarse)), NODE, ROOT)).astype(np.int32)
    rows, columns = np.ogrid[: size_of_cell.shape[0], : size_of_cell.shape[1]]
    cells_per_side = size_of_cell // CELL
    corner = (rows % cells_per_side == 0) & (columns % cells_per_side == 0)
    corner &= extent.valid(CELL)
    order = z_order(extent.root_rows, extent.root_columns)
    cells = order[corner.ravel()[order]]
    return Tokens(
        x=(cells % size_of_cell.shape[1] * CELL).astype(np.int32),
        y=(cells // size_of_cell.shape[1] * CELL).astype(np.int32),
        sizes=size_of_cell.ravel()[cells],
        height=extent.height,
        width=extent.width,
        source_height=source_size[0],
        source_width=source_size[1],
        data=extent.data,
    )
