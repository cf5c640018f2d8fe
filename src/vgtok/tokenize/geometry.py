"""Sizes of the three grids over a frame, and the order in which tokens are listed.

A cell is 16 px, a node 32 px, a root 64 px; every grid covers the frame padded to whole roots. `Extent` says how
much of each grid holds real pixels: whatever lies wholly beyond is padding and does not exist for the tokenizer.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CELL, NODE, ROOT = 16, 32, 64


@dataclass(frozen=True)
class Extent:
    """A valid area of `height` x `width` px and the grids over it."""

    height: int
    width: int

    def rows(self, size: int) -> int:
        """Rows of `size`-px patches that hold at least one real pixel."""
        return -(-self.height // size)

    def columns(self, size: int) -> int:
        """Columns of `size`-px patches that hold at least one real pixel."""
        return -(-self.width // size)

    @property
    def root_rows(self) -> int:
        """Rows of 64-px roots."""
        return self.rows(ROOT)

    @property
    def root_columns(self) -> int:
        """Columns of 64-px roots."""
        return self.columns(ROOT)

    @property
    def dense(self) -> int:
        """Tokens of the dense 16-px grid, padding left out: what a budget is a fraction of."""
        return self.rows(CELL) * self.columns(CELL)

    @property
    def roots(self) -> int:
        """Tokens when nothing is split: the least a three-level partition can hold."""
        return self.root_rows * self.root_columns

    def grid_shape(self, size: int) -> tuple[int, int]:
        """Shape of the padded grid of `size`-px patches: whole roots."""
        return self.root_rows * (ROOT // size), self.root_columns * (ROOT // size)

    def valid(self, size: int) -> NDArray[np.bool_]:
        """Which patches of the padded grid hold a real pixel, (rows, columns) bool."""
        mask = np.zeros(self.grid_shape(size), dtype=np.bool_)
        mask[: self.rows(size), : self.columns(size)] = True
        return mask


@lru_cache(maxsize=32)
def z_order(root_rows: int, root_columns: int) -> NDArray[np.int64]:
    """Flat cell indices of the padded 16-px grid, root by root in reading order, Z-order inside each root.

    A quadtree walked depth first emits its leaves in this order, so a leaf's cells are one contiguous run.
    """
    cells = np.arange(root_rows * root_columns * 16).reshape(root_rows, 2, 2, root_columns, 2, 2)
    # (root row, row of node, row of cell, root column, column of node, column of cell)
    order = cells.transpose(0, 3, 1, 4, 2, 5).reshape(-1)
    order.setflags(write=False)
    return order
