"""`vgtok serve`: the page a frame is dropped on, and its HTTP endpoint."""

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode, urlsplit

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError

if TYPE_CHECKING:
    from vgtok.serve.service import Service


def serve(
    model: Annotated[
        str | None,
        typer.Argument(help=f"A shipped model, a folder, a checkpoint or a hub name. [{DEFAULT_MODEL}]"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 7860,
    score_threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Detections below this score are left out.")
    ] = 0.3,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Largest upload.")] = 64,
    max_megapixels: Annotated[int, typer.Option(min=1, help="Largest frame, read from its header.")] = 100,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name the server is called by, or whose pages may use it; repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="VGTOK_SERVE_TOKEN", help="What every request must bring; 16 or more characters."),
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are told to come back.")] = 32,
    json_: options.Json = False,
) -> None:
    """Serve a page that shows tokens and detections side by side, and the same as an HTTP endpoint."""
    from vgtok.serve.limits import Limits
    from vgtok.serve.server import is_loopback, listening

    service = _service(model, score_threshold)
    # A service manager's way to stop it is as good as Ctrl-C: what was uploaded is deleted either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    limits = Limits(max_megabytes, max_megapixels)
    with listening(
        service, host=host, port=port, limits=limits, places=queue, allowed_hosts=allowed_host or (), token=token
    ) as address:
        if token is None and not is_loopback(urlsplit(address).hostname or ""):
            Console(stderr=True, soft_wrap=True).print(
                f"[yellow]warning:[/] other machines can reach {address} and anybody there may use it; "
                "give --token, or put a proxy that asks who they are before it"
            )
        if json_:
            print(json.dumps({"address": address, "model": service.model}), flush=True)
        else:
            console = Console(soft_wrap=True)
            if service.detector is None:
                console.print(f"[yellow]tokens only:[/] {escape(service.without)}")
            entry = f"{address}/?{urlencode({'token': token})}" if token else address
            console.print(f"[bold]{escape(entry)}[/]  Ctrl-C stops it")
        threading.Event().wait()


def _service(model: str | None, score_threshold: float) -> "Service":
    from vgtok.serve.service import Service

    try:
        from vgtok.detect.loading import load

        detector = load(model or DEFAULT_MODEL)
        # Visitors learn what a model is called, not where it lies.
        name = Path(model).name if model and Path(model).exists() else model or DEFAULT_MODEL
        return Service(detector, name, score_threshold=score_threshold)
    except (InputError, ImportError) as error:
        # Whoever names a model wants that one; the default is only what is there.
        if model is not None:
            raise
        missing = "torch is not installed" if isinstance(error, ImportError) else "it is not part of this installation"
        return Service(
            without=f"the model {DEFAULT_MODEL} could not be loaded ({missing}), so there are tokens but no "
            "detections; start it as 'vgtok serve MODEL' with a model of your own"
        )
