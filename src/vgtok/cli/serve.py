"""`vgtok serve`: a web page for trying a detector on your images, and its HTTP endpoint."""

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
    model: options.ModelArgument = None,
    model_option: Annotated[str | None, typer.Option("--model", help="The same, as other commands take it.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 7860,
    score_threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out detections with a lower score.")
    ] = 0.3,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Maximum upload size in MB.")] = 64,
    max_megapixels: Annotated[int, typer.Option(min=1, help="Maximum image size in megapixels.")] = 100,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name to accept requests for and from; repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="VGTOK_SERVE_TOKEN", help="Access token required of every request; at least 16 characters."
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    queue: Annotated[int, typer.Option(min=1, help="Maximum queued requests; further ones get 503.")] = 32,
    json_: options.Json = False,
) -> None:
    """Serve a web page that shows tokens and detections side by side, and an HTTP endpoint."""
    from vgtok.serve.limits import Limits
    from vgtok.serve.server import is_loopback, listening

    service = _service(options.one_model(model, model_option), score_threshold, device, dtype)
    # Handle SIGTERM like Ctrl-C, so that uploads are deleted either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    limits = Limits(max_megabytes, max_megapixels)
    with listening(
        service, host=host, port=port, limits=limits, places=queue, allowed_hosts=allowed_host or (), token=token
    ) as address:
        if token is None and not is_loopback(urlsplit(address).hostname or ""):
            Console(stderr=True, soft_wrap=True).print(
                f"[yellow]warning:[/] other machines can reach {address} without a token; "
                "set --token, or use a proxy that authenticates"
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


def _service(model: str | None, score_threshold: float, device: str, dtype: str) -> "Service":
    from vgtok.serve.service import Service

    try:
        from vgtok.detect.loading import load

        detector = load(model or DEFAULT_MODEL, device=device, dtype=dtype)
        # Show the name of the model, not its path.
        name = Path(model).name if model and Path(model).exists() else model or DEFAULT_MODEL
        return Service(detector, name, score_threshold=score_threshold)
    except (InputError, ImportError) as error:
        # Only the default model is optional.
        if model is not None:
            raise
        missing = "torch is not installed" if isinstance(error, ImportError) else "it is not part of this installation"
        return Service(
            without=f"the model {DEFAULT_MODEL} could not be loaded ({missing}), so there are tokens but no "
            "detections; start it as 'vgtok serve MODEL' with a model of your own"
        )
