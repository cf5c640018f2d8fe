"""Where an image lies in the frame it was cut from, so that a crop is read as the part of the frame it is.

Positions are shares of a frame. A model trained on crops that each claimed the whole range would meet positions and
sizes in frames that it has never seen.
"""

from dataclasses import dataclass

from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL


@dataclass(frozen=True)
class Crop:
    """The corner (`x`, `y`) of a crop in a frame of `height` x `width`, all in canvas pixels."""

    x: int
    y: int
    height: int
    width: int

    def __post_init__(self) -> None:
        if self.x % CELL or self.y % CELL or self.x < 0 or self.y < 0:
            raise InputError(f"crop: its corner ({self.x}, {self.y}) does not lie on the {CELL}-px grid of the frame")

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the first cell."""
        return self.y // CELL, self.x // CELL

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells of the whole frame."""
        return -(-self.height // CELL), -(-self.width // CELL)


def whole_frame(grid: tuple[int, int]) -> Crop:
    """The crop that is all of a frame of (rows, columns) cells."""
    return Crop(0, 0, grid[0] * CELL, grid[1] * CELL)
