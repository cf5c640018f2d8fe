"""Pack the tokens of several images into one sequence with attention groups; imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgtok.encode.config import EncoderConfig
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens


@dataclass(frozen=True)
class Crop:
    """The corner (`x`, `y`) of a crop on a canvas of `canvas_height` x `canvas_width`, in canvas pixels."""

    x: int
    y: int
    canvas_height: int
    canvas_width: int

    def __post_init__(self) -> None:
        if self.x % CELL or self.y % CELL or self.x < 0 or self.y < 0:
            raise InputError(f"crop: its corner ({self.x}, {self.y}) does not lie on the {CELL}-px grid of the canvas")

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the first cell."""
        return self.y // CELL, self.x // CELL

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells of the whole canvas."""
        return -(-self.canvas_height // CELL), -(-self.canvas_width // CELL)


def whole_canvas(grid: tuple[int, int]) -> Crop:
    """Return the crop that is a whole canvas of (rows, columns) cells."""
    return Crop(0, 0, grid[0] * CELL, grid[1] * CELL)


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Contiguous runs of a packed sequence that attend among themselves.

    `lengths` has one entry per run; `padding` is the number of zero cells of the dense model that act as further keys
    of the run, a fraction if scaled.
    """

    lengths: tuple[int, ...]
    padding: tuple[float, ...]


@dataclass(frozen=True)
class Packing:
    """The order of N packed tokens, prefix tokens of each image first.

    For the N' tokens that stand for regions: `image` (N',) which image, `row`, `column` (N',) first cell, `span` (N',)
    side in cells, `slot` (N',) index in the sequence of N. `prefix` (B, P) holds the indices of the prefix tokens.
    `cells` (sum of rows x columns,) is the index of the token that covers each cell of each image in reading order:
    the gather back to dense maps. `grids` are the (rows, columns) of cells of the images, `crops` the position of each
    on its canvas.
    """

    grids: tuple[tuple[int, int], ...]
    crops: tuple[Crop, ...]
    image: Ints
    row: Ints
    column: Ints
    span: Ints
    slot: Ints
    prefix: Ints
    cells: Ints
    windows: Groups
    images: Groups

    def __len__(self) -> int:
        return self.slot.size + self.prefix.size

    @property
    def covered(self) -> tuple[Ints, Ints]:
        """(N',) rows and columns of cells of each token inside its grid; fewer than its span at a ragged edge."""
        rows, columns = np.array(self.grids, dtype=np.int64)[self.image].T
        return np.minimum(self.span, rows - self.row), np.minimum(self.span, columns - self.column)

    def under_tokens(self) -> tuple[Ints, Ints]:
        """Return for every cell, in the order of `cells`, the span of its token and its place in it, row by row."""
        token = np.zeros(len(self), dtype=np.int64)
        token[self.slot] = np.arange(self.slot.size)
        over = token[self.cells]
        row, column = (np.concatenate(parts) for parts in zip(*map(_reading_order, self.grids), strict=True))
        return self.span[over], (row - self.row[over]) * self.span[over] + column - self.column[over]


def pack(tokens: Sequence[Tokens], config: EncoderConfig, crops: Sequence[Crop] | None = None) -> Packing:
    """Pack the partitions of B images, whole canvases by default or `crops` of them, as one sequence."""
    if crops is not None and config.grid_multiple > 1:
        raise InputError("crops: a model that pads its grid reads whole canvases; train with grid_multiple=1")
    grids = tuple(config.grid_of(t.extent) for t in tokens)
    crops = tuple(map(whole_canvas, grids)) if crops is None else tuple(crops)
    _check(crops, grids)
    image = np.repeat(np.arange(len(tokens)), [len(t) for t in tokens])
    row, column, span = (
        np.concatenate([np.asarray(getattr(t, name), dtype=np.int64) // CELL for t in tokens])
        for name in ("y", "x", "sizes")
    )
    if any(grid != (t.extent.rows(CELL), t.extent.columns(CELL)) for grid, t in zip(grids, tokens, strict=True)):
        image, row, column, span = _with_padding(grids, image, row, column, span)
    window = config.window or max(max(grid) for grid in grids)
    across = max(-(-columns // window) for _, columns in grids)
    down = max(-(-rows // window) for rows, _ in grids)
    group = (image * down + row // window) * across + column // window
    # Stable: inside a window tokens keep the tokenizer's Z-order.
    order = np.argsort(group, kind="stable")
    image, row, column, span, group = (values[order] for values in (image, row, column, span, group))
    slot = np.arange(image.size) + (image + 1) * config.prefix
    starts = np.searchsorted(image, np.arange(len(tokens))) + np.arange(len(tokens)) * config.prefix
    prefix = starts[:, None] + np.arange(config.prefix)[None]
    return Packing(
        grids=grids,
        crops=crops,
        image=image,
        row=row,
        column=column,
        span=span,
        slot=slot,
        prefix=prefix,
        cells=_covering_slots(grids, image, row, column, span, slot),
        windows=_window_groups(grids, group, window, down, across, config),
        images=Groups(
            tuple(int(n) + config.prefix for n in np.bincount(image, minlength=len(tokens))), (0.0,) * len(tokens)
        ),
    )


def _with_padding(
    grids: Sequence[tuple[int, int]], image: Ints, row: Ints, column: Ints, span: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Append a token of one cell for every cell of the grids that no token covers; all arrays are (N',)."""
    extra_image, extra_row, extra_column = [image], [row], [column]
    for number, grid in enumerate(grids):
        own = image == number
        covering = _covering_slots([grid], image[own] * 0, row[own], column[own], span[own], np.ones_like(row[own]))
        down, right = np.nonzero(covering.reshape(grid) == 0)
        extra_image.append(np.full(down.size, number, dtype=np.int64))
        extra_row.append(down.astype(np.int64))
        extra_column.append(right.astype(np.int64))
    image, row, column = (np.concatenate(parts) for parts in (extra_image, extra_row, extra_column))
    return image, row, column, np.concatenate([span, np.ones(image.size - span.size, dtype=np.int64)])


def _reading_order(grid: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return the row and the column of every cell of a grid."""
    row, column = np.divmod(np.arange(grid[0] * grid[1], dtype=np.int64), grid[1])
    return row, column


def _check(crops: Sequence[Crop], grids: Sequence[tuple[int, int]]) -> None:
    if len(crops) != len(grids):
        raise InputError(f"crops: {len(crops)} for {len(grids)} images; give one for each, or none")
    for crop, (rows, columns) in zip(crops, grids, strict=True):
        if crop.corner[0] + rows > crop.grid[0] or crop.corner[1] + columns > crop.grid[1]:
            raise InputError(f"crops: {rows} x {columns} cells at {crop.corner} leave their canvas of {crop.grid}")


def _covering_slots(
    grids: Sequence[tuple[int, int]], image: Ints, row: Ints, column: Ints, span: Ints, slot: Ints
) -> Ints:
    """Return the slot of the token over each cell, image by image in reading order; 0 where there is none."""
    shape = np.array(grids, dtype=np.int64)
    first_cell = np.concatenate([[0], np.cumsum(shape.prod(axis=1))])
    covering = np.zeros(first_cell[-1], dtype=np.int64)
    rows, columns = shape[image].T
    for side in np.unique(span):
        chosen = span == side
        for down, right in np.ndindex(side, side):
            # At a ragged edge a token reaches beyond its grid; those cells do not exist.
            inside = chosen & (row + down < rows) & (column + right < columns)
            cell = first_cell[image[inside]] + (row[inside] + down) * columns[inside] + column[inside] + right
            covering[cell] = slot[inside]
    return covering


def _window_groups(
    grids: Sequence[tuple[int, int]], group: Ints, window: int, down: int, across: int, config: EncoderConfig
) -> Groups:
    """Return the lengths of the runs of equal `group` and the zero cells of each run's window in the dense model."""
    number, lengths = np.unique(group, return_counts=True)
    image, within = np.divmod(number, down * across)
    rows, columns = np.array(grids, dtype=np.int64)[image].T
    valid_rows = np.minimum(window, rows - within // across * window)
    valid_columns = np.minimum(window, columns - within % across * window)
    valid = valid_rows * valid_columns
    padding = (window * window - valid).astype(np.float64)
    if config.window is None or config.padding == "dropped":
        padding = np.zeros_like(padding)
    elif config.padding == "scaled":
        padding = padding * lengths / valid
    return Groups(tuple(lengths.tolist()), tuple(padding.tolist()))
