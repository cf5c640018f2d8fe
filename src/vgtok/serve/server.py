"""The application and the server that runs it: a service and its limits in, a listening address out."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from vgtok import __version__
from vgtok.errors import InputError, VGTokError
from vgtok.serve.answer import Service
from vgtok.serve.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
DEFAULT_LIMITS = Limits()
DEFAULT_PLACES = 32
"""Requests of each kind that may be inside at once, the running one included."""

_QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""What keeps the page's framework from reporting home; read when it is imported."""


@contextmanager
def listening(
    service: Service,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    places: int = DEFAULT_PLACES,
) -> Iterator[str]:
    """Serve page and endpoint while the block runs; gives the address. Port 0 takes a free one."""
    os.environ.update(_QUIET)
    try:
        import gradio  # noqa: F401
        import uvicorn
    except ImportError:
        raise VGTokError("serve: the page needs gradio; pip install 'vgtok[web]'") from None
    with _listener(host, port) as listener, _scratch_folder():
        app = create_app(service, limits, places)
        # A page keeps its connection open for news, so a stopping server would wait for every visitor to leave.
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="vgtok-serve", daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        if not server.started:
            raise VGTokError("serve: the server could not start; what it printed above says why")
        try:
            yield _address(listener)
        finally:
            server.should_exit = True
            thread.join()


def create_app(service: Service, limits: Limits, places: int) -> "ASGIApp":
    """The page at / and the endpoint under /api, one application."""
    from fastapi import FastAPI

    from vgtok.serve.endpoint import answer_errors, api_router
    from vgtok.serve.guard import Guard
    from vgtok.serve.page import mount_page
    from vgtok.serve.turns import Turns

    # The framework's documentation pages load scripts from elsewhere; the schema itself does not.
    app = FastAPI(title="VGTok", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    tokenizing, detecting = Turns(places), Turns(places)
    answer_errors(app)
    app.include_router(api_router(service, limits, tokenizing, detecting))
    mount_page(app, service, limits, tokenizing, detecting)
    return Guard(app, limits)


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket, so that a taken port is one line and a free one is known before anything starts."""
    with ExitStack() as opened:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = opened.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except (OSError, OverflowError) as error:
            raise InputError(f"serve: cannot listen at {host}, port {port} ({error}); try another --port") from None
        yield listener


@contextmanager
def _scratch_folder() -> Iterator[None]:
    """A folder of this server's own for uploads and pictures, gone when it stops."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(prefix="vgtok-serve-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["GRADIO_TEMP_DIR"]
            else:
                os.environ["GRADIO_TEMP_DIR"] = before


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
