"""Uploaded files: received by one route, kept for an hour in one folder, then deleted."""

import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from vgtok.files import write_bytes
from vgtok.serve.endpoint import DEFAULT_NAME
from vgtok.serve.limits import Intake, Limits, RefusedError

try:
    import fcntl
except ImportError:  # Windows has no such locks; left-over folders stay until the system deletes them.
    fcntl = None  # type: ignore[assignment]

PREFIX = "vgtok-serve-"
MARKER = ".vgtok-serve.lock"
SECONDS_KEPT = 3600
SECONDS_BETWEEN_SWEEPS = 600
QUOTA_UPLOADS = 16
"""Quota in uploads of the largest size."""


class Uploads:
    """The files of one server in `folder`, at most `quota` bytes."""

    def __init__(self, folder: Path, quota: int) -> None:
        self.folder, self.quota = folder.resolve(), quota
        self._key = secrets.token_bytes(32)
        self._sweeping = threading.Lock()

    def holds(self, path: str) -> bool:
        """Return whether a path is in the folder, after resolving links and dots."""
        try:
            resolved = Path(path).resolve()
        except (OSError, ValueError, RuntimeError):
            return False
        return resolved.is_relative_to(self.folder) and resolved not in (self.folder, self.folder / MARKER)

    def keep(self, data: bytes, name: str) -> str:
        """Write a file atomically and return its path; equal data has the same path, which cannot be guessed."""
        self.make_room(len(data))
        path = self.folder / hashlib.blake2b(data, key=self._key, digest_size=16).hexdigest() / name
        write_bytes(path, data)
        return str(path)

    def make_room(self, count: int = 0) -> None:
        """Delete expired files, then the oldest until `count` more bytes fit."""
        with self._sweeping:
            now, total = time.time(), count
            for changed, size, path in sorted(self._files(), reverse=True):
                total += size
                # The page's framework leaves an empty file per event.
                idle = size == 0 and path.parent == self.folder and now - changed > 60
                if total > self.quota or now - changed > SECONDS_KEPT or idle:
                    total -= size
                    with suppress(OSError):
                        path.unlink()
                        if path.parent != self.folder:
                            path.parent.rmdir()

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Yield modification time, bytes and path of every file but the marker."""
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = Path(place, name)
                with suppress(OSError):
                    if path != self.folder / MARKER:
                        status = path.lstat()
                        yield status.st_mtime, status.st_size, path


@contextmanager
def upload_folder(quota: int) -> Iterator[Uploads]:
    """Provide an upload folder, swept at intervals; folders of killed servers are deleted first."""
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
    """Hold the lock of the folder; the marker is renamed once locked, so that no other server finds it free."""
    draft = folder / f"{MARKER}.draft"
    with draft.open("w") as marker:
        _lock(marker)
        draft.rename(folder / MARKER)
        yield


def _delete_left_behind() -> None:
    """Delete the folders of this user whose servers are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            # Only folders of this user, and no links.
            if fcntl is None or folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / MARKER).open("r+") as marker:
                _lock(marker)
                shutil.rmtree(folder, ignore_errors=True)


def _lock(marker: IO[str]) -> None:
    """Take a lock that lasts as long as the process; raise OSError if another process holds it."""
    if fcntl is not None:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)


FORM_OVERHEAD = 10_000
"""Bytes a form adds to its file."""

_NAME_BYTES = 150
_NOT_IN_NAMES = frozenset('<>:"/\\|?*#%')


def upload_router(limits: Limits, intake: Intake, uploads: Uploads) -> APIRouter:
    """Return the route the page uploads files to."""
    router = APIRouter()
    # It would log a line for every broken form.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

    @router.post("/gradio_api/upload", include_in_schema=False)
    async def upload(request: Request) -> JSONResponse:
        """Store the file of a form."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise RefusedError(415, "upload: send a form with one file")
        with intake.body("upload", limits.max_bytes + FORM_OVERHEAD) as body:
            parser = MultiPartParser(request.headers, body.chunks(request.receive), max_files=1, max_fields=0)
            try:
                form = await parser.parse()
            except MultiPartException as error:
                raise RefusedError(400, f"upload: {error.message[:1].lower()}{error.message[1:]}") from None
            try:
                file = next((part for _, part in form.multi_items() if isinstance(part, UploadFile)), None)
                if file is None:
                    raise RefusedError(400, "upload: the form has no file")
                data = await file.read()
                limits.check_bytes(len(data), "upload")
                return JSONResponse([await to_thread.run_sync(uploads.keep, data, file_name(file.filename or ""))])
            finally:
                await form.close()

    @router.get("/gradio_api/upload_progress", include_in_schema=False)
    async def upload_progress() -> PlainTextResponse:
        """Report an upload as done at once: the page shows no progress bar."""
        return PlainTextResponse('data: {"msg": "done"}\n\n', media_type="text/event-stream")

    return router


def file_name(given: str) -> str:
    """Return a file name without characters that files or addresses cannot have."""
    last = PurePosixPath(given.replace("\\", "/")).name
    cleaned = "".join(char for char in last if char.isprintable() and char not in _NOT_IN_NAMES).strip(" .")
    stem, dot, suffix = cleaned.rpartition(".")
    short = (stem or suffix).encode()[:_NAME_BYTES].decode(errors="ignore")
    return (f"{short}.{suffix[:10]}" if stem and dot else short) or DEFAULT_NAME
