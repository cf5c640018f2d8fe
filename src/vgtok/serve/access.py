"""Who may talk to the server: headers of a request in, nothing or a refusal out.

A browser can be made to send requests here by any page it shows. Such a request carries the name of that page's host:
as its Host where the name was bound to this machine, else as its Origin; both must be names this server goes by. A
token keeps out people, not only pages.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from vgtok.errors import InputError
from vgtok.serve.limits import RefusedError

COOKIE = "vgtok_serve"
LEAST_TOKEN = 16
"""Characters of a token: one that is shorter could be guessed."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """The names a server goes by, those whose pages may use it too, and the token it asks for."""

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
        """Refuse a request that was meant for another host, or comes from another host's page."""
        host = headers.get("host", "")
        for asked in filter(None, (host, headers.get("x-forwarded-host"))):
            if not self._goes_by(_hostname(asked)):
                raise RefusedError(
                    403, "host: this server does not go by the name the request gives; see vgtok serve --allowed-host"
                )
        if not host:
            raise RefusedError(403, "host: the request names none")
        origin = headers.get("origin")
        if origin is None:
            return
        own = {asked.lower() for asked in (host, headers.get("x-forwarded-host")) if asked}
        if _netloc(origin) not in own and _hostname(_netloc(origin)) not in self.guests:
            raise RefusedError(403, "origin: pages of other hosts may not use this server")

    def check_token(self, headers: Headers) -> None:
        """Refuse a request without the token, if there is one, in its header or its cookie."""
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
        """Whether this is the token, in a time that says nothing about it."""
        return self.token is not None and _equal(given, self.token)

    @property
    def cookie_value(self) -> str:
        """What a browser keeps instead of the token: it goes to every port of this host."""
        return hashlib.sha256(f"{COOKIE}:{self.token}".encode()).hexdigest()

    def _goes_by(self, name: str | None) -> bool:
        if name is None:
            return False
        return name in self.names or name in self.guests or (self.any_address and _is_address(name))


def access_at(host: str, allowed: Iterable[str] = (), token: str | None = None) -> Access:
    """Access to a server listening at `host`, which may also be called by the `allowed` names.

    Listening everywhere, it may be called by any of its addresses: only names can be bound to other machines.
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
    """The name in `name:port`, as names are compared."""
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
