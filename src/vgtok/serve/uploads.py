"""The folder of uploads and of pictures made from them: the only files a visitor can name, for an hour at most.

It is this server's own and has a quota; beyond it the oldest files go first. A server that was killed leaves its folder
behind; the next one to start on this machine deletes it, which a lock tells from the folder of a server still running.
"""

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vgtok.files import write_bytes

try:
    import fcntl
except ImportError:  # Windows has no such locks; folders left behind stay there until its own cleaning.
    fcntl = None  # type: ignore[assignment]

PREFIX = "vgtok-serve-"
MARKER = ".vgtok-serve.lock"
SECONDS_KEPT = 3600
SECONDS_BETWEEN_SWEEPS = 600
QUOTA_UPLOADS = 16
"""The quota, in uploads of the largest size."""


class Uploads:
    """The files of one server in `folder`, at most `quota` bytes of them."""

    def __init__(self, folder: Path, quota: int) -> None:
        self.folder, self.quota = folder.resolve(), quota
        self._key = secrets.token_bytes(32)
        self._sweeping = threading.Lock()

    def holds(self, path: str) -> bool:
        """Whether a path that a visitor names lies in here, wherever links and dots in it lead."""
        try:
            resolved = Path(path).resolve()
        except (OSError, ValueError, RuntimeError):
            return False
        return resolved.is_relative_to(self.folder) and resolved not in (self.folder, self.folder / MARKER)

    def keep(self, data: bytes, name: str) -> str:
        """Write a file for a visitor, whole or not at all; the same data has the same path, which nobody can guess."""
        self.make_room(len(data))
        path = self.folder / hashlib.blake2b(data, key=self._key, digest_size=16).hexdigest() / name
        write_bytes(path, data)
        return str(path)

    def make_room(self, count: int = 0) -> None:
        """Delete what is past its time, then the oldest until `count` more bytes fit."""
        with self._sweeping:
            now, total = time.time(), count
            for changed, size, path in sorted(self._files(), reverse=True):
                total += size
                # The page's framework leaves an empty file at every event.
                idle = size == 0 and path.parent == self.folder and now - changed > 60
                if total > self.quota or now - changed > SECONDS_KEPT or idle:
                    total -= size
                    with suppress(OSError):
                        path.unlink()
                        if path.parent != self.folder:
                            path.parent.rmdir()

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Time of the last change, bytes and path of every file but the marker."""
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = Path(place, name)
                with suppress(OSError):
                    if path != self.folder / MARKER:
                        status = path.lstat()
                        yield status.st_mtime, status.st_size, path


@contextmanager
def upload_folder(quota: int) -> Iterator[Uploads]:
    """A folder while the block runs, swept now and then; those of servers that were killed are deleted first."""
    _delete_left_behind()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        uploads, stopped = Uploads(Path(folder), quota), threading.Event()
        with _marked(uploads.folder):
            threading.Thread(target=_sweep, args=(uploads, stopped), name="vgtok-sweep", daemon=True).start()
            try:
                yield uploads
            finally:
                stopped.set()


def _sweep(uploads: Uploads, stopped: threading.Event) -> None:
    while not stopped.wait(SECONDS_BETWEEN_SWEEPS):
        uploads.make_room()


@contextmanager
def _marked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the marker gets its name when it is locked, so that no other server finds it free."""
    draft = folder / f"{MARKER}.draft"
    with draft.open("w") as marker:
        _lock(marker)
        draft.rename(folder / MARKER)
        yield


def _delete_left_behind() -> None:
    """Delete the folders of this user whose servers are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            # Only what a server of this user made: neither a link nor anybody else's.
            if fcntl is None or folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / MARKER).open("r+") as marker:
                _lock(marker)
                shutil.rmtree(folder, ignore_errors=True)


def _lock(marker: IO[str]) -> None:
    """Take the lock that lasts as long as the process; OSError where another holds it."""
    if fcntl is not None:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
