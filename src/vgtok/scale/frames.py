"""Frames and the shards they are cut into.

A shard names its frames; the worker that gets it reads them where they are, so no pixels pass through the driver. The
rows of a parquet file are named by their range, so a driver holds none of them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.scale.places import is_address, opened, read
from vgtok.tokenize.canvas import read_image

IMAGE_COLUMNS = ("image", "bytes")
"""Columns of a parquet file that hold encoded images."""

NAME_COLUMNS = ("path", "name")

LARGEST_SHARD = 512
SHARDS = 64
"""A run is cut into about this many shards, so that workers of any number end together."""

_READ_ROWS = 16


@dataclass(frozen=True)
class Frame:
    """One image: `item` is its name in results, `place` a file or an address, `label` the stem of files made of it.

    `mark` changes with the file. `content` holds the bytes of what is not read from its place.
    """

    item: str
    place: str
    label: str
    mark: str = ""
    content: bytes | None = None

    def pixels(self) -> NDArray[np.uint8]:
        """Read the image as (H, W, 3) RGB."""
        if self.content is None and not is_address(self.place):
            return read_image(self.place)
        try:
            return read_image(read(self.place) if self.content is None else self.content)
        except VGTokError as error:
            raise InputError(str(error).replace("image bytes", self.item, 1)) from None


@dataclass(frozen=True)
class Rows:
    """Rows `start` to `start + count` of a parquet file; each is a frame."""

    place: str
    start: int
    count: int
    mark: str = ""

    def frames(self) -> Iterator[Frame]:
        """Read the rows, a few at a time."""
        import pyarrow.parquet as parquet

        with opened(self.place) as file:
            source = parquet.ParquetFile(file)
            columns = [name for name in (*IMAGE_COLUMNS, *NAME_COLUMNS) if name in source.schema_arrow.names]
            groups, number = _groups(source.metadata, self.start, self.count)
            for batch in source.iter_batches(batch_size=_READ_ROWS, row_groups=groups, columns=columns):
                for row in batch.to_pylist():
                    if self.start <= number < self.start + self.count:
                        yield self._frame(number, row)
                    number += 1
                if number >= self.start + self.count:
                    return

    def _frame(self, number: int, row: dict[str, Any]) -> Frame:
        values = [row[column] for column in IMAGE_COLUMNS if row.get(column) is not None]
        # The datasets library stores an image as a struct of bytes and path.
        names = [value.get("path") for value in values if isinstance(value, dict)]
        contents = [value.get("bytes") if isinstance(value, dict) else value for value in values]
        content = next((value for value in contents if isinstance(value, bytes)), None)
        name = next((name for name in (*(row.get(key) for key in NAME_COLUMNS), *names) if name), None)
        item = str(name) if name else self.item(number)
        place = item if is_address(item) else str(Path(self.place).parent / item)
        return Frame(item, place, f"{Path(self.place).stem}-{number:07d}", content=content)

    def item(self, number: int) -> str:
        """Return the name of a row that has none of its own."""
        return f"{self.place}#{number}"


Piece = Frame | Rows
"""One frame, or the rows of a parquet file."""


def _groups(metadata: Any, start: int, count: int) -> tuple[list[int], int]:
    """Return the row groups that hold the rows, and the number of the first row in them."""
    ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
    starts = np.r_[0, ends[:-1]]
    groups = np.flatnonzero((ends > start) & (starts < start + count))
    return groups.tolist(), int(starts[groups[0]]) if len(groups) else 0


@dataclass(frozen=True)
class Shard:
    """Consecutive frames that one worker reads and one file of results holds; `first` is the index of the first."""

    number: int
    first: int
    count: int
    pieces: tuple[Piece, ...]

    def frames(self) -> Iterator[Frame | str]:
        """Yield every frame, in order; in place of frames that a damaged file does not give, the error."""
        for piece in self.pieces:
            if isinstance(piece, Frame):
                yield piece
                continue
            given = 0
            try:
                for frame in piece.frames():
                    yield frame
                    given += 1
                problem = f"{piece.place}: holds fewer rows than it did"
            except (VGTokError, OSError, ValueError) as error:
                problem = f"{piece.place}: cannot be read ({error})"
            yield from (problem for _ in range(piece.count - given))

    def items(self) -> list[str]:
        """Return the name of every frame as it is known without reading it."""
        names: list[str] = []
        for piece in self.pieces:
            rows = range(piece.start, piece.start + piece.count) if isinstance(piece, Rows) else ()
            names.extend(map(piece.item, rows) if isinstance(piece, Rows) else [piece.item])
        return names

    def key(self, settings: str) -> str:
        """Return a digest of the settings and the frames: results with this key are those of this shard."""
        text = [settings, str(self.first), *map(_identity, self.pieces)]
        return hashlib.sha256("\n".join(text).encode(errors="surrogatepass")).hexdigest()


def _identity(piece: Piece) -> str:
    fields = [piece.start, piece.count] if isinstance(piece, Rows) else [piece.item, piece.label]
    return json.dumps([piece.place, piece.mark, *fields])


def count_frames(pieces: Iterable[Piece]) -> int:
    """Return the number of frames."""
    return sum(piece.count if isinstance(piece, Rows) else 1 for piece in pieces)


def shard_size(frames: int) -> int:
    """Return the size of the shards of a run; it depends on the number of frames alone, so that runs resume."""
    return min(LARGEST_SHARD, max(1, -(-frames // SHARDS)))


def cut_shards(pieces: Sequence[Piece], size: int | None = None) -> list[Shard]:
    """Cut frames into shards of `size`, by default that of `shard_size`; the last one may be smaller."""
    if size is not None and size < 1:
        raise InputError(f"shard_frames: {size} is not a number of frames, 1 or more")
    size = size or shard_size(count_frames(pieces))
    shards: list[Shard] = []
    held: list[Piece] = []
    first = room = 0
    for piece in pieces:
        rest: Piece | None = piece
        while rest is not None:
            if not room:
                first, room = _close(shards, held, first), size
            taken, rest = _split(rest, room)
            held.append(taken)
            room -= count_frames([taken])
    _close(shards, held, first)
    return shards


def _close(shards: list[Shard], held: list[Piece], first: int) -> int:
    """Make a shard of the held pieces, if any; return the index of the next frame."""
    count = count_frames(held)
    if count:
        shards.append(Shard(len(shards), first, count, tuple(held)))
        held.clear()
    return first + count


def _split(piece: Piece, room: int) -> tuple[Piece, Piece | None]:
    """Return the part of a piece that has room, and the rest."""
    if isinstance(piece, Frame) or piece.count <= room:
        return piece, None
    rest = Rows(piece.place, piece.start + room, piece.count - room, piece.mark)
    return Rows(piece.place, piece.start, room, piece.mark), rest
