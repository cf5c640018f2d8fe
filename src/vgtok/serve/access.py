"""Access to the server: allowed hosts and origins, the token, and limits on connections."""

import asyncio
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from vgtok.errors import InputError
from vgtok.serve.limits import RefusedError

COOKIE = "vgtok_serve"
LEAST_TOKEN = 16
"""Minimum length of a token: a shorter one could be guessed."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """The names of a server, further hosts whose pages may use it, and its token."""

    names: frozenset[str] = frozenset(_LOOPBACK)
    guests: frozenset[str] = frozenset()
    any_address: bool = False
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isascii()):
            raise InputError(
                f"token: give {LEAST_TOKEN} or more ASCII characters, e.g. those of `openssl rand -hex 16`"
            )

    def check_names(self, headers: Headers) -> None:
        """Refuse a request that is meant for another host, or comes from a page of another host."""
        host = headers.get("host", "")
        for asked in filter(None, (host, headers.get("x-forwarded-host"))):
            if not self._goes_by(_hostname(asked)):
                raise RefusedError(403, "host: not a name of this server; see vgtok serve --allowed-host")
        if not host:
            raise RefusedError(403, "host: the request has no Host header")
        origin = headers.get("origin")
        if origin is None:
            return
        own = {asked.lower() for asked in (host, headers.get("x-forwarded-host")) if asked}
        if _netloc(origin) not in own and _hostname(_netloc(origin)) not in self.guests:
            raise RefusedError(403, "origin: pages of other hosts may not use this server")

    def check_token(self, headers: Headers) -> None:
        """Refuse a request without the token in its header or its cookie, if the server has one."""
        if self.token is None:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is None or not _equal(cookie.value, self.cookie_value):
            raise RefusedError(
                401, "token: send it as 'Authorization: Bearer TOKEN', or open the page as /?token=TOKEN once"
            )

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in constant time."""
        return self.token is not None and _equal(given, self.token)

    @property
    def cookie_value(self) -> str:
        """What a browser stores instead of the token: cookies are sent to every port of a host."""
        return hashlib.sha256(f"{COOKIE}:{self.token}".encode()).hexdigest()

    def _goes_by(self, name: str | None) -> bool:
        if name is None:
            return False
        return name in self.names or name in self.guests or (self.any_address and _is_address(name))


def access_at(host: str, allowed: Iterable[str] = (), token: str | None = None) -> Access:
    """Return the access to a server that listens at `host` and may also be called by the `allowed` names.

    A server that listens on all interfaces may be called by any IP address: only names can be rebound.
    """
    guests = frozenset(_checked(name) for name in allowed)
    everywhere = host in ("", "0.0.0.0", "::") or (_is_address(host) and ip_address(host).is_unspecified)
    return Access(frozenset((*_LOOPBACK, host.lower())), guests, everywhere, token)


def _checked(name: str) -> str:
    hostname = _hostname(name)
    if hostname is None or "/" in name:
        raise InputError(f"allowed-host: {name!r} is not the name of a host, like tokens.example.org")
    return hostname


def _hostname(netloc: str) -> str | None:
    """Return the name in `name:port`, in the form names are compared in."""
    try:
        parts = urlsplit(f"//{netloc}")
        found, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if found is None or "@" in netloc or parts.path or parts.query or parts.fragment:
        return None
    return found.rstrip(".")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


SECONDS_FOR_A_HEAD = 10
MOST_CONNECTIONS = 256


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with limits on the number of connections and the time for a request head."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; above the limit, close one that waits for a request head."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
            idle = min((other for other in others if other._waiting), key=_deadline, default=self)
            idle.transport.abort()
        self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        """Read data; once a head is complete its timer stops."""
        super().data_received(data)
        self._wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Restart the timer for the next head."""
        super().on_response_complete()
        self._wait_for_a_head()

    def shutdown(self) -> None:
        """Stop with the server: abort what a client has half sent or half read, let the rest be answered."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and (cycle.more_body or cycle.response_started):
            self.transport.abort()
        else:
            super().shutdown()

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
