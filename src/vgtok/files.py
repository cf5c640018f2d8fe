"""Files written whole or not at all, read with errors that name them, and locked while one process writes them.

A kill leaves what was there before. What it leaves beside that, a draft, is removed by a later write to the folder.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vgtok.errors import InputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_DRAFT = ".vgtok-draft"
"""How the name of a file that is being written ends."""
_ABANDONED = 3600.0
"""Seconds without a write after which a draft is taken for what a kill left."""
_NAMED = 40
"""Characters of a file's name that its draft bears; the whole could be longer than a file system allows."""

_swept: set[Path] = set()


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """An empty file beside `path` to write to, removed in the end unless the block renamed it; folders are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:_NAMED]}.", suffix=_DRAFT)
        os.close(handle)
        # Named as the caller names it: mkstemp makes a relative folder absolute, and the two would not compare equal.
        draft = path.with_name(Path(name).name)
        try:
            # mkstemp is private by design; a result is as readable as any other file of the user.
            mask = os.umask(0)
            os.umask(mask)
            draft.chmod(0o666 & ~mask)
            yield draft
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft that takes the name `path` once the block ends well."""
    with drafted(path) as draft:
        yield draft
        draft.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` whole."""
    with replacing(path) as draft:
        draft.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as `write_bytes` does; half a surrogate pair, which UTF-8 has no bytes for, as its escape."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_json(path: Path, kind: str = "json file") -> Any:
    """What a JSON file holds; `kind` is what errors call the file it should be."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise InputError(f"{path}: not a {kind} (nested too deeply)") from None
    except ValueError as error:
        raise InputError(f"{path}: not a {kind} ({error})") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:
        raise InputError(f"{path}: not a text file in UTF-8") from None


def is_there(path: Path) -> bool:
    """Whether a file or folder has that name; one that no file system takes names none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def stamp(path: Path) -> list[int]:
    """Size and time of a file, which change when it does; empty where there is none."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


@contextmanager
def locked(path: Path, place: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; refused, naming `place`, while another process holds it.

    The system takes a lock from a process that ends, however it ends, so none outlives a kill.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _held(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    if handle is None:
        raise InputError(f"{place}: another run is writing there; wait until it ends or choose another --out")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _held(path: Path) -> int | None:
    """An open file that holds the lock `path`, or None where another does."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        if not _take(handle):
            os.close(handle)
            return None
        # Whoever held the lock before may have removed the file between the two calls above.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def _take(handle: int) -> bool:
    """Lock an open file; a file system without locks gives one to everybody."""
    if sys.platform == "win32":
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _sweep(folder: Path) -> None:
    """Remove the drafts that kills left in a folder, once a process."""
    if folder.absolute() in _swept:
        return
    _swept.add(folder.absolute())
    for draft in folder.glob(f".*{_DRAFT}"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()
