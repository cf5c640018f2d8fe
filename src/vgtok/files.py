"""Write files atomically, read them with errors that name them, and lock them while one process writes.

A killed process leaves the previous file and possibly a draft beside it, which a later write to the folder removes.
"""

import json
import os
import re
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
"""Suffix of a file that is being written."""
_ABANDONED = 3600.0
"""Seconds after its last write at which a draft counts as left by a killed process."""
_NAMED = 40
"""Characters of the file name in the name of its draft; more could exceed the limit of the file system."""

_swept: set[Path] = set()


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Create an empty file beside `path`, and folders as needed; remove it at the end unless the block renamed it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:_NAMED]}.", suffix=_DRAFT)
        os.close(handle)
        # mkstemp makes a relative folder absolute; the caller compares with the path as given.
        draft = path.with_name(Path(name).name)
        try:
            # mkstemp makes private files; a result gets the permissions of any other file of the user.
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
    """Yield a draft that replaces `path` if the block succeeds."""
    with drafted(path) as draft:
        yield draft
        draft.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with replacing(path) as draft:
        draft.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; lone surrogates, which UTF-8 cannot encode, are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_json(path: Path, kind: str = "json file") -> Any:
    """Return the content of a JSON file; errors call the expected file a `kind`."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise InputError(f"{path}: not a {kind} (nested too deeply)") from None
    except ValueError as error:
        raise InputError(f"{path}: not a {kind} ({error})") from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:
        raise InputError(f"{path}: not a text file in UTF-8") from None


def is_there(path: Path) -> bool:
    """Return whether the path exists; False for a name that no file system accepts."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_local(path: str | Path) -> None:
    """Raise InputError if the path is the address of something on a network."""
    # A Path holds one slash of the two.
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(path), re.IGNORECASE) and not is_there(Path(path)):
        raise InputError(f"{path}: is an address, and nothing is fetched; download it and give the name of the file")


def stamp(path: Path) -> list[int]:
    """Return size and modification time of a file, which change when it does; empty if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


@contextmanager
def locked(path: Path, place: Path) -> Iterator[None]:
    """Hold the lock file `path` during the block; raise InputError naming `place` if another process holds it.

    The system releases the lock of a process that ends, also of a killed one.
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
    """Return an open file that holds the lock, or None if another process holds it."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        if not _take(handle):
            os.close(handle)
            return None
        # The previous holder may have removed the file between the two calls above.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def _take(handle: int) -> bool:
    """Lock an open file; always succeeds on a file system without locks."""
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
    """Remove drafts of killed processes from a folder, once per process."""
    if folder.absolute() in _swept:
        return
    _swept.add(folder.absolute())
    for draft in folder.glob(f".*{_DRAFT}"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()
