"""Limits of the server: pixels, bytes, time and concurrent requests."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.types import Receive

from vgtok.errors import InputError, VGTokError
from vgtok.tokenize.decode import FORMATS, check_memory, formats_claiming, open_picture, picture_pixels


class RefusedError(VGTokError):
    """A refused request: one sentence for the user and the HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of a single upload."""

    megabytes: int = 64
    megapixels: int = 100

    def __post_init__(self) -> None:
        for name in ("megabytes", "megapixels"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} is not 1 or more")

    @property
    def max_bytes(self) -> int:
        """Largest upload in bytes."""
        return self.megabytes * 2**20

    def check_bytes(self, count: int, name: str) -> None:
        """Refuse an upload that has, or announces, too many bytes."""
        if count > self.max_bytes:
            raise RefusedError(413, f"{name}: larger than the {self.megabytes} MB allowed here")

    def read(self, data: bytes, name: str) -> NDArray[np.uint8]:
        """Decode an upload to (H, W, 3) uint8 RGB, upright."""
        self.check_bytes(len(data), name)
        if not data:
            raise RefusedError(400, f"{name}: the file is empty")
        # Whoever reads such a file after this server may take it for something else, so that is forbidden here.
        claimed = formats_claiming(BytesIO(data))
        if len(claimed) > 1 or not set(claimed) <= set(FORMATS):
            accepted = ", ".join(FORMATS)
            raise RefusedError(403, f"{name}: content of {' and '.join(claimed)}; only one of {accepted} is allowed")
        try:
            picture = open_picture(BytesIO(data), name)
        except InputError as error:
            raise RefusedError(415, str(error)) from None
        width, height = picture.size
        if width * height > self.megapixels * 10**6:
            raise RefusedError(
                413, f"{name}: {width} x {height} pixels are more than the {self.megapixels} megapixels allowed here"
            )
        try:
            check_memory(picture, len(data), name)
            return picture_pixels(picture, name)
        except InputError as error:
            raise RefusedError(400, str(error)) from None


SECONDS_TO_SEND = 60
SECONDS_OF_SILENCE = 10
BODIES_AT_ONCE = 8
"""Largest bodies held at once; there may be more of smaller ones."""


class Intake:
    """Counts the bytes of all bodies that are being received or processed."""

    def __init__(self, limits: Limits) -> None:
        self.room = BODIES_AT_ONCE * limits.max_bytes
        self.held = 0

    @contextmanager
    def body(self, name: str, most: int) -> Iterator["Body"]:
        """Open a body of at most `most` bytes; they count until the block ends."""
        body = Body(self, name, most)
        try:
            yield body
        finally:
            self.held -= body.size


@dataclass(eq=False)
class Body:
    """One request body; `name` is its name in errors."""

    intake: Intake
    name: str
    most: int
    size: int = 0

    async def chunks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they arrive; refuse a body that is too large, too slow or aborted."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + SECONDS_TO_SEND
        more = True
        while more:
            try:
                async with asyncio.timeout_at(min(deadline, clock.time() + SECONDS_OF_SILENCE)):
                    message = await receive()
            except TimeoutError:
                raise RefusedError(
                    408,
                    f"{self.name}: did not arrive within {SECONDS_TO_SEND} s, or paused for {SECONDS_OF_SILENCE} s",
                ) from None
            if message["type"] == "http.disconnect":
                # Nobody reads this; without it there would be a traceback in the log.
                raise RefusedError(400, f"{self.name}: the client disconnected before it was complete")
            chunk = message.get("body", b"")
            self._count(len(chunk))
            yield chunk
            more = message.get("more_body", False)

    async def whole(self, receive: Receive) -> bytes:
        """Return the whole body."""
        data = bytearray()
        async for chunk in self.chunks(receive):
            data += chunk
        return bytes(data)

    def _count(self, count: int) -> None:
        self.size += count
        self.intake.held += count
        if self.size > self.most:
            shown = f"{self.most / 2**20:.0f} MB" if self.most >= 2**20 else f"{self.most / 2**10:.0f} kB"
            raise RefusedError(413, f"{self.name}: larger than the {shown} allowed here")
        if self.intake.held > self.intake.room:
            raise RefusedError(503, "busy: too many uploads at once; try again in a moment")


_Answer = TypeVar("_Answer")


class WorkQueue:
    """Runs work in a thread, one at a time and in order, for requests that hold one of `places`."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._taken = 0
        self._running = asyncio.Lock()
        # A thread of its own that `finish` can wait for: an interpreter that ends under a computing thread aborts.
        self._worker = ThreadPoolExecutor(1, "vgtok-work")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the block runs; refuse at once if all are taken."""
        if self._taken >= self.places:
            raise RefusedError(503, f"busy: {self._taken} requests are being answered; try again in a moment")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], _Answer]) -> _Answer:
        """Return the result of `work` when its turn comes; refuse it if the queue has finished by then."""
        async with self._running:
            try:
                answer = self._worker.submit(copy_context().run, work)
            except RuntimeError:
                raise RefusedError(503, "server: stopping, so this request is not answered") from None
            return await asyncio.wrap_future(answer)

    def finish(self) -> None:
        """Wait for the running work; whatever has not begun is refused. Call it from another thread."""
        self._worker.shutdown()
