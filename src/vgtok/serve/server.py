"""The application and its server: a service and its limits in, a listening address out."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

from vgtok import __version__
from vgtok.errors import InputError, VGTokError
from vgtok.serve.limits import Limits
from vgtok.serve.service import Service
from vgtok.serve.uploads import QUOTA_UPLOADS, Uploads, upload_folder

if TYPE_CHECKING:
    from vgtok.serve.access import Access
    from vgtok.serve.middleware import Guard

LOOPBACK = "127.0.0.1"
DEFAULT_LIMITS = Limits()
DEFAULT_PLACES = 32
"""Maximum queued requests per endpoint, including the running one."""

_QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Disables telemetry of the page's framework; read when it is imported."""


@contextmanager
def listening(
    service: Service,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    places: int = DEFAULT_PLACES,
    allowed_hosts: Sequence[str] = (),
    token: str | None = None,
) -> Iterator[str]:
    """Serve page and endpoint while the block runs, and yield the address. Port 0 selects a free one.

    Requests must name the host, localhost or one of `allowed_hosts`, and carry the token if there is one.
    """
    os.environ.update(_QUIET)
    try:
        import gradio  # noqa: F401
        import uvicorn
    except ImportError:
        raise VGTokError("serve: the page needs gradio; pip install 'vgtok[web]'") from None
    from vgtok.serve.access import BoundedProtocol, access_at

    access = access_at(host, allowed_hosts, token)
    with _listener(host, port) as listener, _framework_folder(limits) as uploads:
        app = create_app(service, limits, places, access, uploads)
        # A stopping server waits this long for clients that read slowly.
        config = uvicorn.Config(app, http=BoundedProtocol, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="vgtok-serve", daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        if not server.started:
            raise VGTokError("serve: the server could not start; see its messages above")
        try:
            yield _address(listener)
        finally:
            # Before anything is deleted, and before the interpreter may end under a computing thread.
            app.finish()
            server.should_exit = True
            thread.join()


def create_app(service: Service, limits: Limits, places: int, access: "Access", uploads: Uploads) -> "Guard":
    """Return one application with the page at / and the endpoint under /api."""
    from fastapi import FastAPI

    from vgtok.serve.endpoint import answer_errors, api_router, health_router
    from vgtok.serve.limits import Intake, WorkQueue
    from vgtok.serve.middleware import Guard
    from vgtok.serve.page import mount_page
    from vgtok.serve.uploads import upload_router

    # The framework's documentation pages load scripts from other hosts; the schema does not.
    app = FastAPI(title="VGTok", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    intake, tokenizing, detecting = Intake(limits), WorkQueue(places), WorkQueue(places)
    answer_errors(app)
    app.include_router(api_router(service, limits, intake, tokenizing, detecting))
    app.include_router(health_router(service))
    app.include_router(upload_router(limits, intake, uploads))
    events = mount_page(app, service, limits, uploads, tokenizing, detecting)
    return Guard(app, limits, access, intake, uploads, events, (tokenizing, detecting))


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """Provide a bound socket, so that a used port is one error line and a free one is known before the start."""
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
def _framework_folder(limits: Limits) -> Iterator[Uploads]:
    """Provide the upload folder, where the page's framework also keeps its files."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    with upload_folder(QUOTA_UPLOADS * limits.max_bytes) as uploads:
        os.environ["GRADIO_TEMP_DIR"] = str(uploads.folder)
        try:
            yield uploads
        finally:
            if before is None:
                del os.environ["GRADIO_TEMP_DIR"]
            else:
                os.environ["GRADIO_TEMP_DIR"] = before


def is_loopback(host: str) -> bool:
    """Return whether a server at the address `host` can only be reached from this machine."""
    return ip_address(host).is_loopback


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
