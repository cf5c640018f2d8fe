"""One request at a time, a bounded number inside: the queue that page and endpoint share.

The model is one, and its timings are only its own while nothing else runs on it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from anyio import to_thread

from vgtok.serve.limits import RefusedError

_Answer = TypeVar("_Answer")


class Turns:
    """Runs work in a thread, in order of arrival, for those who hold one of `places`."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._taken = 0
        self._running = asyncio.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the block runs; refused at once where all are taken."""
        if self._taken >= self.places:
            raise RefusedError(503, f"busy: {self._taken} requests are being answered; try again in a moment")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], _Answer]) -> _Answer:
        """The result of `work` once its turn has come."""
        async with self._running:
            return await to_thread.run_sync(work)
