"""`vgtok tokenize`: files, folders and globs to overlays, npz and JSON; one bad file never stops the rest."""

import io
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.cli.options import expanded, output_names
from vgtok.errors import VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import progress_bar
from vgtok.tokenize.images import read_image
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens


class Output(StrEnum):
    """What is written per image."""

    overlay = "overlay"
    npz = "npz"
    json = "json"


def tokenize(
    images: Annotated[list[str], typer.Argument(help="Image files, folders or globs.")],
    budget: options.Budget = None,
    percentile: options.Percentile = None,
    table: options.Table = None,
    rank: options.Rank = SHIPPED_RANK,
    scorer: options.ScorerName = "tophat",
    gate: options.GateName = "lambda_min",
    splitter: options.Splitter = "quadtree",
    canvas: options.CanvasOption = options.CANVAS_TEXT,
    write: Annotated[list[Output] | None, typer.Option(help="What to write per image; repeatable. [overlay]")] = None,
    out: options.Out = Path("vgtok-out"),
    json_: options.Json = False,
) -> None:
    """Partition images into 16, 32 and 64 px tokens at a budget (40% unless told otherwise)."""
    tokenizer = options.tokenizer_from(budget, percentile, table, rank, scorer, gate, splitter, canvas)
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    errors = Console(stderr=True, soft_wrap=True)

    def fail(image: str, error: str) -> None:
        failed.append({"image": image, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    paths: list[Path] = []
    for argument in images:
        try:
            paths.extend(path for path in expanded(argument) if path not in paths)
        except VGTokError as error:
            fail(argument, str(error))
    names = output_names(paths)
    with progress_bar() as progress:
        for path in progress.track(paths, description="tokenizing"):
            try:
                done.append(_one(path, names[path], tokenizer, set(write or [Output.overlay]), out))
            except VGTokError as error:
                fail(str(path), str(error))
            except MemoryError:
                fail(str(path), f"{path}: too large for the memory there is")
    if json_:
        print(json.dumps({"images": done, "failed": failed}))
    elif done:
        _print_summary(done, out)
    if failed:
        errors.print(f"{len(done)} images tokenized, {len(failed)} inputs could not be")
        raise typer.Exit(1)


def _one(path: Path, name: str, tokenizer: Tokenizer, outputs: set[Output], out: Path) -> dict[str, Any]:
    image = read_image(path)
    tokens = tokenizer(image)
    written = []
    for output in sorted(outputs):
        target = out / (f"{name}.tokens.png" if output == Output.overlay else f"{name}.tokens.{output}")
        if output == Output.json:
            write_text(target, tokens.to_json())
        else:
            write_bytes(target, _png(tokens, image) if output == Output.overlay else _npz(tokens))
        written.append(str(target))
    return {
        "image": str(path),
        "tokens": len(tokens),
        "dense": tokens.dense,
        "retained": tokens.retained,
        "counts": {str(size): count for size, count in tokens.counts().items()},
        "written": written,
    }


def _png(tokens: Tokens, image: Any) -> bytes:
    buffer = io.BytesIO()
    tokens.overlay(image).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _npz(tokens: Tokens) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **tokens.to_arrays())  # type: ignore[arg-type]
    return buffer.getvalue()


def _print_summary(done: list[dict[str, Any]], out: Path) -> None:
    table = Table(title=f"tokens written to {out}", title_justify="left")
    for heading in ("image", "tokens", "of dense", "retained", "16 px", "32 px", "64 px"):
        table.add_column(heading, justify="left" if heading == "image" else "right")
    for row in done[:20]:
        counts = row["counts"]
        cells = (str(row["tokens"]), str(row["dense"]), f"{row['retained']:.2%}", *(str(counts[s]) for s in counts))
        table.add_row(escape(Path(row["image"]).name), *cells)
    console = Console()
    console.print(table)
    if len(done) > 20:
        console.print(f"... and {len(done) - 20} more")
