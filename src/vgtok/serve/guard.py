"""What stands before every route: nothing larger than allowed comes in, nothing foreign goes out or is fetched.

The page's framework names pictures and files of its own elsewhere, for link previews and examples; those are taken out
of the page, and a content security policy has the browser refuse any other host whatever the page says. It would also
fetch a file a visitor names by its address; a server inside a network must not be sent around in it.
"""

import json
import re
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vgtok.serve.endpoint import failure
from vgtok.serve.limits import Limits, RefusedError

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)

_FOREIGN_META = re.compile(rb"<meta\b[^>]*https?://[^>]*>")
_FOREIGN_EXAMPLE = re.compile(rb'"https://[^"]*/gradio-app/gradio/[^"]*"')
_COMPRESSIBLE = ("/assets/", "/static/")
"""Scripts and styles: the rest is short, or pictures, or a page."""

_EVENTS = "/gradio_api/"
"""Where the page's framework takes what visitors do, as JSON."""

_FORM_OVERHEAD = 10_000
"""Bytes a form adds to the one file in it."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on unless it is too large or names files elsewhere."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        try:
            # What a request says of itself is enough to turn it away before it is sent.
            self.limits.check_bytes(int(length) - _FORM_OVERHEAD if length.isdigit() else 0, "upload")
            if scope["method"] == "POST" and scope["path"].startswith(_EVENTS) and not _is_form(scope):
                receive = await self._looked_through(receive)
        except RefusedError as error:
            await failure(error.status, str(error))(scope, receive, send)
            return
        if not scope["path"].startswith(_COMPRESSIBLE):
            # A page that is compressed could not be looked through.
            kept = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": kept}
        await self.app(scope, receive, _Cleaned(send))

    async def _looked_through(self, receive: Receive) -> Receive:
        """The same request once its body is known to name no file elsewhere."""
        first = await receive()
        body, last = first.get("body", b""), first
        while last["type"] == "http.request" and last.get("more_body", False):
            last = await receive()
            body += last.get("body", b"")
            self.limits.check_bytes(len(body), "request")
        try:
            elsewhere = _names_an_address(json.loads(body or b"null"))
        except (ValueError, RecursionError):
            raise RefusedError(400, "request: its body is not JSON") from None
        if elsewhere:
            raise RefusedError(400, "frame: send the file itself; addresses of files are not followed")
        waiting: list[Message] = [{"type": "http.request", "body": body}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again


def _is_form(scope: Scope) -> bool:
    return Headers(scope=scope).get("content-type", "").startswith("multipart/form-data")


def _names_an_address(value: Any) -> bool:
    """Whether any file in an event is to be fetched: its path is then an address."""
    if isinstance(value, dict):
        path = value.get("path")
        return (isinstance(path, str) and "://" in path) or any(map(_names_an_address, value.values()))
    return isinstance(value, list) and any(map(_names_an_address, value))


class _Cleaned:
    """A `send` that adds the policy to every response and takes foreign hosts out of pages."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.page = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = POLICY
            headers["Referrer-Policy"] = "no-referrer"
            headers["X-Content-Type-Options"] = "nosniff"
            if headers.get("content-type", "").startswith("text/html"):
                # Its length is known once it is whole.
                self.start = message
                return
        elif self.start is not None and message["type"] == "http.response.body":
            self.page += message.get("body", b"")
            if message.get("more_body", False):
                return
            page = _FOREIGN_EXAMPLE.sub(b'""', _FOREIGN_META.sub(b"", self.page))
            MutableHeaders(scope=self.start)["Content-Length"] = str(len(page))
            await self.send(self.start)
            self.start = None
            message = {"type": "http.response.body", "body": page}
        await self.send(message)
