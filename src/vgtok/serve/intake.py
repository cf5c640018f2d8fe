"""Bodies of requests on their way in: bounded each in bytes and time, and all together in the memory they hold.

A body takes no place in the queue until it is whole, so that one that never ends keeps nobody out.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Receive

from vgtok.serve.limits import Limits, RefusedError

SECONDS_TO_SEND = 60
SECONDS_OF_SILENCE = 10
BODIES_AT_ONCE = 8
"""Bodies of the largest size that may be held at once; of smaller ones there may be more."""


class Intake:
    """Counts the bytes of every body that is on its way or being worked on."""

    def __init__(self, limits: Limits) -> None:
        self.room = BODIES_AT_ONCE * limits.max_bytes
        self.held = 0

    @contextmanager
    def body(self, name: str, most: int) -> Iterator["Body"]:
        """A body of at most so many bytes; they count until the block ends."""
        body = Body(self, name, most)
        try:
            yield body
        finally:
            self.held -= body.size


@dataclass(eq=False)
class Body:
    """One body; `name` is what it is called where it is refused."""

    intake: Intake
    name: str
    most: int
    size: int = 0

    async def chunks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        """Its parts as they come; refused as soon as it is too large, too slow or gone."""
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
                    f"{self.name}: it did not arrive within {SECONDS_TO_SEND} s, or paused for {SECONDS_OF_SILENCE} s",
                ) from None
            if message["type"] == "http.disconnect":
                # Nobody reads this; left to itself it would end as a traceback in the log.
                raise RefusedError(400, f"{self.name}: its sender left before it was whole")
            chunk = message.get("body", b"")
            self._count(len(chunk))
            yield chunk
            more = message.get("more_body", False)

    async def whole(self, receive: Receive) -> bytes:
        """All of it."""
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
            raise RefusedError(503, "busy: too many uploads are on their way; try again in a moment")
