"""Find frames: files, folders, lists of files, parquet files and addresses, in the order they are named."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vgtok.errors import InputError
from vgtok.files import read_lines
from vgtok.scale.frames import IMAGE_COLUMNS, NAME_COLUMNS, Frame, Piece, Rows
from vgtok.scale.places import PARQUET, first_line, in_this_process, is_address, listed, mark, opened, read, settled

LIST = ".txt"
"""Ending of a file that lists frames, one per line."""


def find_frames(sources: str | Path | Sequence[str | Path], *, recursive: bool = False) -> list[Piece]:
    """Return the frames of files, folders, lists, parquet files and addresses, in the order given.

    A folder gives its images and parquet files, sorted; `recursive` also those of folders inside it. A .txt file lists
    frames, one per line. A parquet file has encoded images in the column 'image' or 'bytes', or their places in 'path'.
    An address is one that fsspec reads, e.g. s3://bucket/folder; what is in memory:// is read here and sent to workers.
    """
    pieces: list[Piece] = []
    labels: set[str] = set()
    for source in [sources] if isinstance(sources, str | Path) else sources:
        for place, changed in listed(str(source), recursive=recursive):
            pieces.extend(frames_in(place, changed, labels))
    if not pieces:
        raise InputError("frames: there are none; name files, folders, parquet files or addresses")
    return pieces


def frames_in(place: str, changed: str, labels: set[str], item: str | None = None) -> Iterator[Piece]:
    """Yield the frames of one file: itself, or what a list or parquet file holds.

    `changed` is the file's mark, `labels` are those in use, `item` is the name of an image [default: its place].
    """
    suffix = Path(place).suffix.lower()
    if suffix == PARQUET:
        yield _rows(settled(place), changed)
    elif suffix == LIST:
        for line in _lines(place):
            yield from frames_in(line, mark(line), labels)
    else:
        yield _frame(place, changed, labels, item or place)


def _frame(place: str, changed: str, labels: set[str], item: str) -> Frame:
    stem, number = Path(place).stem, 2
    label = stem
    while label in labels:
        label, number = f"{stem}-{number}", number + 1
    labels.add(label)
    if any("\ud800" <= char <= "\udfff" for char in place + item):
        # Results are parquet files, whose text is UTF-8.
        raise InputError(f"{item.encode(errors='backslashreplace').decode()}: its name is not text; rename the file")
    content = read(place) if in_this_process(place) else None
    return Frame(item, settled(place), label, changed, content)


def _rows(place: str, changed: str) -> Rows:
    import pyarrow
    import pyarrow.parquet as parquet

    if in_this_process(place):
        raise InputError(f"{place}: is in the memory of this process, which workers cannot read; write it to a file")
    try:
        with opened(place) as file:
            source = parquet.ParquetFile(file)
            names, rows = source.schema_arrow.names, source.metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{place}: not a parquet file ({first_line(error)})") from None
    known = (*IMAGE_COLUMNS, *NAME_COLUMNS)
    if not set(names) & set(known):
        raise InputError(f"{place}: has none of the columns {', '.join(known)}, but {', '.join(names[:8])}")
    return Rows(place, 0, rows, changed)


def _lines(place: str) -> list[str]:
    if is_address(place):
        return [line.strip() for line in read(place).decode(errors="replace").splitlines() if line.strip()]
    # Names in a list on disk are those seen from its folder.
    folder = Path(place).absolute().parent
    lines = [line.strip() for line in read_lines(Path(place)) if line.strip()]
    return [line if is_address(line) else str(folder / line) for line in lines]
