"""Middleware: checks framing, access, routes and uploads of every request before the application sees it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from fastapi.responses import JSONResponse, RedirectResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vgtok.serve.access import COOKIE, Access
from vgtok.serve.controls import check_event
from vgtok.serve.endpoint import HEALTH, failure
from vgtok.serve.limits import Intake, Limits, RefusedError, WorkQueue
from vgtok.serve.uploads import FORM_OVERHEAD, Uploads

# The framework compiles its HTML components and the scripts of events, so 'unsafe-eval' is needed: docs/decisions.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)

_FOREIGN_META = re.compile(rb"<meta\b[^>]*https?://[^>]*>")
_FOREIGN_EXAMPLE = re.compile(rb'"https://[^"]*/gradio-app/gradio/[^"]*"')


class CleanSend:
    """A `send` that adds security headers to every response and removes foreign hosts from pages."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.page = b""

    async def __call__(self, message: Message) -> None:
        """Forward a message; hold a page back until it is complete."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = POLICY
            headers["Referrer-Policy"] = "no-referrer"
            headers["X-Content-Type-Options"] = "nosniff"
            if headers.get("content-type", "").startswith("text/html"):
                # Its length is known once it is complete.
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


_EVENT = "/gradio_api/run/predict"
_FILE = "/gradio_api/file="
_SCRIPTS = ("/assets/", "/static/")
"""Scripts and styles, which may be compressed; the rest is short, pictures, or a page to be cleaned."""

_GET = (
    "/", "/theme.css", "/manifest.json", "/favicon.ico", "/gradio_api/upload_progress",
    "/api/openapi.json", HEALTH,
)  # fmt: skip
_POST = ("/api/tokenize", "/api/detect", "/gradio_api/upload", _EVENT)

_EVENT_BYTES = 100 * 2**10
"""An event holds a file name and a few settings."""


class Guard:
    """ASGI middleware around the whole application; `events` holds how many values each event of the page sends."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        access: Access,
        intake: Intake,
        uploads: Uploads,
        events: Mapping[int, int],
        queues: Sequence[WorkQueue],
    ) -> None:
        self.app, self.limits, self.access, self.intake, self.uploads = app, limits, access, intake, uploads
        self.events, self.queues = events, queues

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = CleanSend(send)
        try:
            headers = Headers(scope=scope)
            self.access.check_names(headers)
            _check_framing(headers)
            self._check_route(scope)
            if entry := self._entry(scope):
                await entry(scope, receive, send)
                return
            if scope["path"] != HEALTH:
                self.access.check_token(headers)
            self._check_length(scope, headers)
            if scope["path"] == _EVENT:
                receive = await self._checked_event(receive, headers)
        except RefusedError as error:
            await _refusal(error)(scope, receive, send)
            return
        if not scope["path"].startswith(_SCRIPTS):
            kept = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": kept}
        await self.app(scope, receive, send)

    def finish(self) -> None:
        """Wait for the work that runs; requests whose work has not begun are refused."""
        for queue in self.queues:
            queue.finish()

    def _check_route(self, scope: Scope) -> None:
        """Refuse routes that neither page nor endpoint uses, and files outside the upload folder."""
        method, path = scope["method"], scope["path"]
        if method in ("GET", "HEAD") and path.startswith(_FILE):
            if not self.uploads.holds(path.removeprefix(_FILE)):
                raise RefusedError(403, "file: only uploads and their results can be downloaded")
            return
        known = path in _POST if method == "POST" else path in _GET or path.startswith(_SCRIPTS)
        # Deep links of the framework share a visitor's session with others.
        if method not in ("GET", "HEAD", "POST") or not known or b"deep_link" in scope["query_string"]:
            raise RefusedError(404, f"path: no such route for {method}")

    def _entry(self, scope: Scope) -> RedirectResponse | None:
        """Exchange a valid token in the address for a cookie: redirect to the page, with its settings, without it."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        given = query.pop("token", [""])[0]
        if scope["path"] != "/" or not self.access.is_token(given):
            return None
        answer = RedirectResponse(f"/?{urlencode(query, doseq=True)}" if query else "/", 303)
        answer.set_cookie(COOKIE, self.access.cookie_value, httponly=True, samesite="strict")
        return answer

    def _check_length(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request by its Content-Length header, before its body is sent."""
        length = headers.get("content-length", "0")
        announced = int(length) if length.isdigit() and len(length) < 20 else 0
        if scope["path"] == _EVENT:
            if announced > _EVENT_BYTES:
                raise RefusedError(413, f"request: larger than the {_EVENT_BYTES // 2**10} kB allowed here")
            return
        self.limits.check_bytes(announced - FORM_OVERHEAD, "upload")

    async def _checked_event(self, receive: Receive, headers: Headers) -> Receive:
        """Return the body again after checking that the page may have sent it, with no files but uploads."""
        with self.intake.body("request", _EVENT_BYTES) as body:
            data = await body.whole(receive)
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise RefusedError(400, "request: the body is not JSON") from None
        if not self._names_uploads_only(event, headers["host"]):
            raise RefusedError(403, "image: upload the file itself; no other file is read, by path or URL")
        # What was checked, not what was sent: two JSON parsers may disagree about a duplicate key.
        waiting: list[Message] = [{"type": "http.request", "body": json.dumps(self._known_event(event)).encode()}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again

    def _known_event(self, event: Any) -> dict[str, Any]:
        """Return the parts of an event that are used; refuse one that the page does not send."""
        number, data = (event.get("fn_index"), event.get("data")) if isinstance(event, dict) else (None, None)
        if not isinstance(number, int) or not isinstance(data, list) or self.events.get(number) != len(data):
            raise RefusedError(400, "request: not an event of the page")
        check_event(data)
        return {"fn_index": number, "data": data, "session_hash": str(event.get("session_hash"))}

    def _names_uploads_only(self, value: Any, host: str) -> bool:
        """Return whether every file anywhere in an event is in the upload folder."""
        if isinstance(value, list):
            return all(self._names_uploads_only(part, host) for part in value)
        if not isinstance(value, dict):
            return True
        path, address = value.get("path"), value.get("url")
        if path is not None and not (isinstance(path, str) and self.uploads.holds(path)):
            return False
        if address is not None and not (isinstance(address, str) and self._is_own(address, host)):
            return False
        return all(self._names_uploads_only(part, host) for part in value.values())

    def _is_own(self, address: str, host: str) -> bool:
        """Return whether an address is of this server and of a file in the upload folder."""
        start, found, path = address.partition(_FILE)
        own = start == "" or start.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
        return bool(found) and own and self.uploads.holds(unquote(path))


def _check_framing(headers: Headers) -> None:
    """Refuse a request with two lengths: a proxy in front of this server may use the other one."""
    if "transfer-encoding" in headers and "content-length" in headers:
        raise RefusedError(400, "request: has both Content-Length and Transfer-Encoding")


def _refusal(error: RefusedError) -> JSONResponse:
    response = failure(error.status, str(error))
    # What follows on this connection may be the rest of a body, or look like a request.
    response.headers["Connection"] = "close"
    return response
