"""Places of files: paths of this machine, and addresses that fsspec reads, like s3://bucket/folder or memory://frames.

Workers run in other folders and on other machines, so a path leaves as an absolute one, an address as it is.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from vgtok.data.dataset import IMAGE_SUFFIXES, images_in
from vgtok.errors import InputError
from vgtok.files import stamp, write_bytes

PARQUET = ".parquet"

_FOUND = IMAGE_SUFFIXES | {PARQUET}
"""Endings of what is taken from a folder."""

_Value = TypeVar("_Value")


def is_address(place: str) -> bool:
    """Return whether a place is an address that fsspec reads, and no path."""
    return re.match(r"[a-z][a-z0-9+.-]+://", place, re.IGNORECASE) is not None


def in_this_process(place: str) -> bool:
    """Return whether a place is in the memory of this process, which no worker can read."""
    return place.lower().startswith("memory://")


def settled(place: str) -> str:
    """Return a path of this machine, also one written as file://, as an absolute one, an address as it is."""
    if place.lower().startswith("file://"):
        place = place[len("file://") :]
    return place if is_address(place) else str(Path(place).absolute())


def listed(source: str, *, recursive: bool) -> Iterator[tuple[str, str]]:
    """Yield the files a file, a folder or an address stands for, sorted, each with a mark that changes with it."""
    source = settled(source)
    if not is_address(source):
        for path in _local_files(Path(source), recursive=recursive):
            yield str(path), mark(str(path))
        return

    def look(system: Any, path: str) -> dict[str, dict[str, Any]]:
        if any(char in path for char in "*?["):
            return dict(system.glob(path, detail=True))
        if system.isdir(path):
            return dict(system.find(path, maxdepth=None if recursive else 1, detail=True))
        return {path: system.info(path)}

    found = _asked(source, look)
    names = [name for name in sorted(found) if found[name]["type"] == "file"]
    if len(found) > 1:
        names = [name for name in names if Path(name).suffix.lower() in _FOUND]
    if not names:
        raise InputError(f"{source}: holds no images and no parquet files")
    system, _ = _filesystem(source)
    for name in names:
        yield str(system.unstrip_protocol(name)), _mark_of(found[name])


def _local_files(path: Path, *, recursive: bool) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_dir():
        return [path]
    inside = path.rglob("*") if recursive else path.iterdir()
    files = sorted(place for place in inside if place.suffix.lower() in _FOUND and place.is_file())
    # An empty folder is reported with the kinds of files that are looked for.
    return files or list(images_in(path))


def mark(place: str) -> str:
    """Return size and time of what is at a place, which change when it does; '' if nothing is there."""
    if not is_address(place):
        return str(stamp(Path(place)))
    try:
        return _mark_of(_asked(place, lambda system, path: dict(system.info(path))))
    except InputError:
        # What cannot be read is reported as the row of its frame.
        return ""


def _mark_of(info: dict[str, Any]) -> str:
    fields = ("size", "mtime", "LastModified", "updated", "etag", "ETag", "created")
    return str([str(info[field]) for field in fields if field in info])


def read(place: str) -> bytes:
    """Return the bytes of a file or an address."""
    if not is_address(place):
        with opened(place) as file:
            return file.read()
    return _asked(place, lambda system, path: bytes(system.cat_file(path)))


@contextmanager
def opened(place: str) -> Iterator[IO[bytes]]:
    """Open a file or an address to read parts of it."""
    if is_address(place):
        file = _asked(place, lambda system, path: system.open(path, "rb"))
    else:
        try:
            file = Path(place).open("rb")  # noqa: SIM115  (closed below, outside of what is caught here)
        except OSError as error:
            raise InputError(f"{place}: cannot be read ({error.strerror or error})") from None
    with file:
        yield file


def written(place: str, data: bytes) -> None:
    """Write a file whole or not at all: by a draft on a disk; a store shows an object when it is complete."""
    if not is_address(place):
        write_bytes(Path(place), data)
        return
    _asked(place, lambda system, path: system.pipe_file(path, data))


def files_in(folder: str, suffix: str) -> list[str]:
    """Return the files of a folder with that ending, sorted; none if there is no such folder."""
    if not is_address(folder):
        return sorted(str(path) for path in Path(folder).glob(f"[!.]*{suffix}"))

    def look(system: Any, path: str) -> list[str]:
        names = system.find(path, maxdepth=1) if system.isdir(path) else []
        return sorted(str(system.unstrip_protocol(name)) for name in names if name.endswith(suffix))

    return _asked(folder, look)


def exists(place: str) -> bool:
    """Return whether there is a file at a place."""
    return _asked(place, lambda system, path: bool(system.exists(path))) if is_address(place) else Path(place).exists()


def removed(place: str) -> None:
    """Delete one file."""
    if is_address(place):
        _asked(place, lambda system, path: system.rm_file(path))
    else:
        Path(place).unlink(missing_ok=True)


def beside(folder: str, name: str) -> str:
    """Return the place of a name in a folder or at an address."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else str(Path(folder) / name)


def _asked(place: str, ask: Callable[[Any, str], _Value]) -> _Value:
    """Return what a store answers; an error in one sentence that names the place."""
    system, path = _filesystem(place)
    try:
        return ask(system, path)
    except FileNotFoundError:
        raise InputError(f"{place}: no such file") from None
    except Exception as error:  # Every store has its own errors for what is refused or out of reach.
        raise InputError(f"{place}: cannot be reached ({first_line(error)})") from None


def _filesystem(place: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise InputError(f"{place}: is no address that can be read here ({first_line(error)})") from None
    return system, path


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
