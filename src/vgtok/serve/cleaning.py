"""What goes out: the policy on every response, and no foreign host in a page."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)

# The framework builds the HTML components of its page with `new Function`, so 'unsafe-eval' cannot go.
_FOREIGN_META = re.compile(rb"<meta\b[^>]*https?://[^>]*>")
_FOREIGN_EXAMPLE = re.compile(rb'"https://[^"]*/gradio-app/gradio/[^"]*"')


class Cleaned:
    """A `send` that adds the policy to every response and takes foreign hosts out of pages."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.page = b""

    async def __call__(self, message: Message) -> None:
        """Send a message on, a page only once it is whole."""
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
