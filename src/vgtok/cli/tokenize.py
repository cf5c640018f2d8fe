"""`vgtok tokenize` and `vgtok calibrate`: images to tokens, and data sets to retention tables.

A file that cannot be tokenized is reported in one line, and the others are still done.
"""

import io
import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.cli.options import console_table, expand_inputs, output_names
from vgtok.data.dataset import open_dataset
from vgtok.errors import BudgetError, VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import default_workers, progress_bar
from vgtok.tokenize.calibrate import RANKS, Sweep, measure_table
from vgtok.tokenize.canvas import read_image
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens

_SHOWN_ROWS = 20
_SHOWN_BUDGETS = (0.8, 0.7, 0.6, 0.4, 0.2)


class Output(StrEnum):
    """Files written per image."""

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
    write: Annotated[
        list[Output] | None, typer.Option(help="Files to write per image; repeatable (default: overlay).")
    ] = None,
    out: options.Out = Path("vgtok-out"),
    json_: options.Json = False,
) -> None:
    """Partition images into tokens of 16, 32 and 64 px at a budget of 40% by default."""
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
            paths.extend(path for path in expand_inputs(argument) if path not in paths)
        except VGTokError as error:
            fail(argument, str(error))
    names = output_names(paths)
    with progress_bar() as progress:
        for path in progress.track(paths, description="tokenizing"):
            try:
                done.append(_tokenize_file(path, names[path], tokenizer, set(write or [Output.overlay]), out))
            except VGTokError as error:
                fail(str(path), str(error))
            except MemoryError:
                fail(str(path), f"{path}: not enough memory")
    if json_:
        print(json.dumps({"images": done, "failed": failed}))
    elif done:
        _print_summary(done, out)
    if failed:
        errors.print(f"{len(done)} images tokenized, {len(failed)} inputs could not be")
        raise typer.Exit(1)


def _tokenize_file(path: Path, name: str, tokenizer: Tokenizer, outputs: set[Output], out: Path) -> dict[str, Any]:
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
    rows = [
        (
            Path(row["image"]).name,
            str(row["tokens"]),
            str(row["dense"]),
            f"{row['retained']:.2%}",
            *(str(count) for count in row["counts"].values()),
        )
        for row in done[:_SHOWN_ROWS]
    ]
    columns = ("image", "tokens", "of dense", "retained", "16 px", "32 px", "64 px")
    console = Console()
    console.print(console_table(f"tokens written to {out}", columns, rows))
    if len(done) > _SHOWN_ROWS:
        console.print(f"... and {len(done) - _SHOWN_ROWS} more")


def calibrate(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="JSON file to write the table to.")] = Path("retention.json"),
    name: Annotated[str | None, typer.Option(help="Name of the table (default: the file name).")] = None,
    scorer: Annotated[list[str] | None, typer.Option(help="Scores to measure; repeatable (default: tophat).")] = None,
    rank: Annotated[
        list[float] | None, typer.Option(help="Gate ranks to measure; repeatable (default: 0 to 0.4).")
    ] = None,
    canvas: options.CanvasOption = options.CANVAS_TEXT,
    workers: options.Workers = None,
    json_: options.Json = False,
) -> None:
    """Measure the share of tokens each percentile keeps. Run the same command to resume."""
    sweep = Sweep(tuple(scorer or ["tophat"]), tuple(rank or RANKS), canvas=options.canvas_size(canvas))
    dataset = open_dataset(data)
    table = measure_table(name or out.stem, dataset.images, dataset.name, sweep, out, workers or default_workers())
    if json_:
        print(json.dumps(asdict(table)))
    else:
        _print_table(table, out)


def _print_table(table: RetentionTable, out: Path) -> None:
    rows = []
    for curve in table.curves:
        cells = []
        for budget in _SHOWN_BUDGETS:
            try:
                cells.append(f"{curve.percentile_for(budget):.2f}")
            except BudgetError:
                cells.append("unreachable")
        rows.append((curve.scorer, f"{curve.rank:g}", *cells))
    title = f"percentile per budget, {table.measured_on['images']} images, written to {out}"
    Console().print(
        console_table(title, ("scorer", "gate rank", *(f"{budget:.0%}" for budget in _SHOWN_BUDGETS)), rows)
    )
