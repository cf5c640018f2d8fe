"""Where the tokens of a batch stand in the sequence a host's layers run on, and where they go back to on its grid.

Partitions of images of one size enter. A `Plan` leaves: index tensors between cells of the host's patch grid and one
packed sequence of all images, split into the groups that attend among themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens

Ints = NDArray[np.int64]
Run = Callable[[Tensor, Tensor], Tensor]
"""(count, length, D) vectors and their (count, length) slots to (count, length, D) vectors."""


@dataclass(frozen=True)
class Groups:
    """The parts of a packed sequence that attend among themselves.

    `batches` holds (count, length) slots of all groups of one length; `restore` is the order that brings the batches,
    one after the other, back into the sequence, None if they stand in it so already.
    """

    batches: tuple[Tensor, ...]
    restore: Tensor | None

    def each(self, sequence: Tensor, run: Run) -> Tensor:
        """Run every batch of a packed (N, D) sequence; return (N, D)."""
        if self.restore is None:
            [slots] = self.batches
            return run(torch.unflatten(sequence, 0, tuple(slots.shape)), slots).flatten(0, 1)
        parts = [run(sequence[slots], slots).flatten(0, 1) for slots in self.batches]
        return torch.cat(parts)[self.restore]


@dataclass(frozen=True)
class Plan:
    """A packed sequence of N vectors: T tokens that stand for regions, and S special tokens of each group.

    `image`, `row`, `column` and `span` (T,) place a token on the (rows, columns) `grid` of cells, `covered` (T, 2)
    counts the rows and columns of cells it covers inside the grid, `slot` (T,) is its index in the sequence. `special`
    (B * windows, S) are the slots of class tokens, registers and the like, `dense` (B * windows, L) those of the host's
    own sequence, special tokens in place, and `cells` (B, rows * columns) those of the cells in reading order.
    """

    grid: tuple[int, int]
    image: Tensor
    row: Tensor
    column: Tensor
    span: Tensor
    covered: Tensor
    slot: Tensor
    special: Tensor
    dense: Tensor
    cells: Tensor
    images: Groups
    windows: Groups
    spans: tuple[int, ...]
    tokens: tuple[Tokens, ...]

    def __len__(self) -> int:
        return self.slot.numel() + self.special.numel()

    def average(self, grid: Tensor) -> Tensor:
        """Average (cells, D) vectors of the grid over the cells of each token: (T, D)."""
        every = grid.repeat(len(self.cells), 1)
        sums = every.new_zeros(len(self), grid.shape[1]).index_add(0, self.cells.flatten(), every)
        return sums[self.slot] / self.covered.prod(dim=1, keepdim=True)

    def spread(self, sequence: Tensor) -> Tensor:
        """Copy the packed (N, D) sequence to the host's own, (B * windows, L, D)."""
        return sequence[self.dense]

    def maps(self, sequence: Tensor) -> Tensor:
        """Copy the packed (N, D) sequence to (B, rows, columns, D) maps."""
        return torch.unflatten(sequence[self.cells], 1, self.grid)


def make_plan(
    partitions: Sequence[Tokens], special: tuple[int, int], window: tuple[int, int] | None, device: torch.device
) -> Plan:
    """Plan a batch of images of one size.

    `special` is the number of special tokens before and after the cells of a group, `window` the rows and columns of
    cells of an attention window, None if all cells of an image are one group.
    """
    extent = partitions[0].extent
    grid = extent.rows(CELL), extent.columns(CELL)
    window_rows, window_columns = window or grid
    across, down = grid[1] // window_columns, grid[0] // window_rows
    image, row, column, span = _regions(partitions, grid, (window_rows, window_columns))
    group = (image * down + row // window_rows) * across + column // window_columns
    order = np.lexsort((column, row, group))
    image, row, column, span, group = (values[order] for values in (image, row, column, span, group))
    counts = np.bincount(group, minlength=len(partitions) * down * across)
    lengths = counts + sum(special)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(group.size) - (np.cumsum(counts) - counts)[group]
    slot = starts[group] + sum(special) + within
    specials = starts[:, None] + np.arange(sum(special))[None]
    cells = _covering(len(partitions), grid, image, row, column, span, slot)
    # (B, down, window rows, across, window columns) to (B * windows, cells of one)
    windowed = cells.reshape(-1, down, window_rows, across, window_columns).transpose(0, 1, 3, 2, 4)
    inside = windowed.reshape(lengths.size, window_rows * window_columns)
    dense = np.concatenate([specials[:, : special[0]], inside, specials[:, special[0] :]], axis=1)
    covered = np.stack([np.minimum(span, grid[0] - row), np.minimum(span, grid[1] - column)], axis=1)

    def tensor(values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return Plan(
        grid=grid,
        image=tensor(image),
        row=tensor(row),
        column=tensor(column),
        span=tensor(span),
        covered=tensor(covered),
        slot=tensor(slot),
        special=tensor(specials),
        dense=tensor(dense),
        cells=tensor(cells.reshape(len(partitions), -1)),
        images=_groups(lengths.reshape(len(partitions), -1).sum(axis=1), device),
        windows=_groups(lengths, device),
        spans=tuple(int(value) for value in np.unique(span)),
        tokens=tuple(partitions),
    )


def _regions(
    partitions: Sequence[Tokens], grid: tuple[int, int], window: tuple[int, int]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return image, first row, first column and span in cells of all tokens, none of which crosses a window, (T,)."""
    image = np.repeat(np.arange(len(partitions)), [len(partition) for partition in partitions])
    row, column, span = (
        np.concatenate([np.asarray(getattr(partition, name), dtype=np.int64) // CELL for partition in partitions])
        for name in ("y", "x", "sizes")
    )
    while True:
        last_row, last_column = np.minimum(row + span, grid[0]) - 1, np.minimum(column + span, grid[1]) - 1
        crosses = (row // window[0] != last_row // window[0]) | (column // window[1] != last_column // window[1])
        if not crosses.any():
            return image, row, column, span
        half = span[crosses] // 2
        kept = [values[~crosses] for values in (image, row, column, span)]
        for down, right in np.ndindex(2, 2):
            child_row, child_column = row[crosses] + down * half, column[crosses] + right * half
            # At a ragged edge of the grid a quarter may lie beyond it.
            inside = (child_row < grid[0]) & (child_column < grid[1])
            child = (image[crosses], child_row, child_column, half)
            kept = [np.concatenate([old, new[inside]]) for old, new in zip(kept, child, strict=True)]
        image, row, column, span = kept


def _covering(images: int, grid: tuple[int, int], image: Ints, row: Ints, column: Ints, span: Ints, slot: Ints) -> Ints:
    """Return the slot of the token over each cell, (B, rows, columns)."""
    covering = np.zeros((images, *grid), dtype=np.int64)
    for side in np.unique(span):
        chosen = span == side
        for down, right in np.ndindex(side, side):
            inside = chosen & (row + down < grid[0]) & (column + right < grid[1])
            covering[image[inside], row[inside] + down, column[inside] + right] = slot[inside]
    return covering


def _groups(lengths: Ints, device: torch.device) -> Groups:
    """Return runs of the sequence, (G,) lengths, as batches of equal length."""
    starts = np.cumsum(lengths) - lengths
    batches = [starts[lengths == length][:, None] + np.arange(length) for length in np.unique(lengths)]
    order = np.concatenate([batch.ravel() for batch in batches])
    restore = None if len(batches) == 1 else torch.from_numpy(np.argsort(order)).to(device)
    return Groups(tuple(torch.from_numpy(batch).to(device) for batch in batches), restore)
