"""`vgtok export`: a detector as a file that runs without torch."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.cli.detect import HeadName

app = typer.Typer(no_args_is_help=True, help="Write a detector for other runtimes.")


# A single command would otherwise take the place of its group.
@app.callback()
def _group() -> None: ...


@app.command()
def onnx(
    model: Annotated[
        str, typer.Argument(help="A saved model's folder, a Co-DETR checkpoint, a shipped model or a hub name.")
    ],
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens every frame is read as; the count nearest to the model's budget unless given."
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="WIDTHxHEIGHT of the frames; the model's own canvas unless given.")
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Leave the number of tokens open; --tokens is then the default.")
    ] = False,
    head: Annotated[HeadName | None, typer.Option(help="The head that predicts; the model's own choice.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; NAME.onnx here unless given.")] = None,
    json_: options.Json = False,
) -> None:
    """Write one ONNX file for frames of one size, for `vgtok.OnnxDetector` and any other runtime."""
    from vgtok.detect.loading import load
    from vgtok.export.onnx_file import export_onnx

    frame = None if size is None else options.frame_size(size)
    detector = load(model)
    # The name a file carries is not the place where the model happened to lie.
    name = Path(model).resolve().name if Path(model).exists() else model
    path = out or Path(f"{Path(name).stem if Path(model).is_file() else Path(name).name}.onnx")
    with Console(stderr=True).status("tracing"):
        description = export_onnx(
            detector,
            path,
            size=frame,
            tokens=tokens,
            dynamic=dynamic,
            head=None if head is None else head.value,
            name=name,
        )
    document = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "model": description.model,
        "width": description.width,
        "height": description.height,
        "tokens": description.tokens,
        "dynamic": description.dynamic,
        "head": description.head,
        "classes": len(description.names),
        "license": description.license,
    }
    if json_:
        print(json.dumps(document))
        return
    console = Console(highlight=False, soft_wrap=True)
    count = "any number of" if dynamic else f"{description.tokens:,}"
    console.print(
        f"{description.width} x {description.height} px as {count} tokens, {path.stat().st_size / 1e6:.0f} MB"
    )
    if description.license:
        console.print(f"[yellow]license:[/] {escape(description.license)}")
    console.print(f"open it as vgtok.OnnxDetector({str(path)!r})")
