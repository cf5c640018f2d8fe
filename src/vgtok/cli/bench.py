"""`vgtok bench`: what each part costs, as ratios taken in one run."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Speed and memory, ratios taken in one run.")


@app.callback()
def _verbs() -> None:
    """Keep the verb names even while there is only one."""


@app.command()
def tokenizer(
    image: Annotated[Path | None, typer.Option(help="A frame of your own; a rendered one unless given.")] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Rounds the medians are taken over.")] = 25,
    json_: options.Json = False,
) -> None:
    """Time the tokenizer on one thread at 2048 x 1152 against six OpenCV top-hats and decode + resize."""
    from vgtok.bench.tokenizer import measure_tokenizer

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_tokenizer(image, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    table = Table(title=f"one thread, 2048 x 1152, medians of {repeats}, {cost.frame} frame", title_justify="left")
    for heading in ("what", "ms", "against tokenize"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row("tokenize (score, gate, split)", f"{cost.tokenize_ms:.1f}", "1.00")
    for label, time in (
        ("six 8-bit OpenCV top-hats", cost.yardstick_ms),
        ("JPEG decode + resize", cost.decode_resize_ms),
        ("tokenize to an exact budget", cost.budget_ms),
    ):
        table.add_row(label, f"{time:.1f}", f"{time / cost.tokenize_ms:.2f}")
    console = Console()
    console.print(table)
    if cost.peak_extra_mb is not None:
        console.print(f"peak memory on top of the canvas: {cost.peak_extra_mb:.0f} MB")
