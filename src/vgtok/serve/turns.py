"""One request at a time, a bounded number waiting: the queue page and endpoint share.

The model is one, and its timings are only its own while nothing else runs on it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

from vgtok.serve.limits import RefusedError

_Answer = TypeVar("_Answer")


class Turns:
    """Runs work in a thread, in order of arrival; at most `places` requests are inside, the running one included."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._inside = 0
        self._running = asyncio.Lock()

    async def run(self, work: Callable[[], _Answer]) -> _Answer:
        """The result of `work` once its turn has come; refused at once where every place is taken."""
        if self._inside >= self.places:
            raise RefusedError(503, f"busy: {self._inside} requests are waiting already; try again in a moment")
        self._inside += 1
        try:
            async with self._running:
                return await to_thread.run_sync(work)
        finally:
            self._inside -= 1
