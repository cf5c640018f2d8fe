"""Connections before there is a request on them: bounded in number, and in the time a request's head may take.

The server's own protocol waits for a head as long as its sender likes; a few hundred half-sent ones are all it takes to
use up a process's handles.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_FOR_A_HEAD = 10
MOST_CONNECTIONS = 256


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; beyond the most there may be, one that has not asked for anything makes room."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
            idle = min((other for other in others if other._waiting), key=_deadline, default=self)
            idle.transport.abort()
        self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        """Read on; once a head is whole its time is no longer counted."""
        super().data_received(data)
        self._wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the clock as well."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The next head has its own time."""
        super().on_response_complete()
        self._wait_for_a_head()

    def _wait_for_a_head(self) -> None:
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(SECONDS_FOR_A_HEAD, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _deadline(protocol: Any) -> float:
    return float(protocol._waiting.when())
