"""`vgtok study`: the paper's tables and figures, paper beside measured; alone, the map of all of them."""

import csv
import io
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok import __version__
from vgtok.cli import options
from vgtok.cli.detect import HeadName
from vgtok.data.dataset import open_dataset
from vgtok.errors import InputError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import default_workers
from vgtok.show.results_page import results_page
from vgtok.study.registry import ENTRIES, Entry, data_present, last_run, load_study
from vgtok.study.result import Inputs, Result, Row, Study


def study(
    name: Annotated[str | None, typer.Argument(help="The study to run; none lists them all.")] = None,
    data: Annotated[str | None, typer.Option(help="visdrone:DIR or aitodv2:DIR.")] = None,
    frame: Annotated[str | None, typer.Option(help="For pictures: an image file, or a file stem of the data.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="For studies of accuracy: a model's folder, file, shipped or hub name [vgtok-tiny]; repeatable for "
            "dense-epochs, which also takes a folder of checkpoints."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="For studies of accuracy: only so many images, evenly spread.")
    ] = None,
    head: Annotated[
        HeadName | None, typer.Option(help="For studies of accuracy: the head that predicts; the model's own choice.")
    ] = None,
    out: options.Out = Path("vgtok-study"),
    workers: options.Workers = None,
    json_: options.Json = False,
) -> None:
    """Make a table or figure of the paper again; without a name, list all of them with what they need."""
    if name is None:
        _coverage(out, json_)
        return
    chosen = load_study(name)
    if not chosen.runs_model and (model or limit or head):
        raise InputError(f"study '{name}': runs no detector, so it takes neither --model, --limit nor --head")
    if data is None and "VGTOK_VISDRONE" in os.environ and frame is None:
        data = f"visdrone:{os.environ['VGTOK_VISDRONE']}"
    dataset = open_dataset(data) if data else None
    result = chosen.run(
        Inputs(
            dataset, workers or default_workers(), frame, out, tuple(model or ()), limit, head.value if head else None
        )
    )
    document = {
        "study": chosen.name,
        "title": chosen.title,
        "data": dataset.name if dataset else None,
        "images": len(dataset.images) if dataset else None,
        "ran_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "vgtok": __version__,
        "rows": list(result.rows),
        "paper_only": list(result.paper_only),
        "notes": list(result.notes),
        **result.also,
    }
    written = _write(document, result, out)
    if json_:
        print(json.dumps(document))
    else:
        _print(chosen, result, written)


def _write(document: dict[str, Any], result: Result, out: Path) -> list[Path]:
    stem = out / document["study"]
    paths = [stem.with_suffix(".json"), stem.with_suffix(".csv")]
    write_text(paths[0], json.dumps(document, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(result.rows[0]))
    writer.writeheader()
    writer.writerows(result.rows)
    write_text(paths[1], text.getvalue())
    if result.plot is not None:
        from vgtok.show.plot import render_plot

        picture = render_plot(result.plot)
        if picture is None:
            Console(stderr=True).print("no plot: matplotlib is missing; pip install 'vgtok[study]'", markup=False)
        else:
            write_bytes(stem.with_suffix(".png"), picture)
            paths.append(stem.with_suffix(".png"))
    for label, image in result.pictures.items():
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        paths.append(out / f"{label}.png")
        write_bytes(paths[-1], buffer.getvalue())
    write_text(out / "README.md", results_page(out))
    return paths


def _print(chosen: Study, result: Result, written: Sequence[Path]) -> None:
    console = Console()
    console.print(_table(chosen.title, result.rows))
    if result.paper_only:
        console.print(_table("in the paper, not measured here", result.paper_only))
    for note in result.notes:
        console.print(f"[dim]-[/] {escape(note)}")
    console.print(f"[dim]written: {escape(', '.join(map(str, written)))}[/]")


def _table(title: str, rows: Sequence[Row]) -> Table:
    """The rows as a table; where a column has a twin from the paper the two share one, the paper's in colour."""
    twins = {column for column in rows[0] if f"paper_{column}" in rows[0]}
    shown = [column for column in rows[0] if column.removeprefix("paper_") not in twins or column in twins]
    table = Table(title=f"{title}{' (paper)' if twins else ''}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for column in shown:
        numeric = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        cells = []
        for column in shown:
            text = _text(row[column])
            paper = _text(row[f"paper_{column}"]) if column in twins else None
            text = f"[cyan]{text}[/]" if column.startswith("paper") else text
            cells.append(text if paper is None else f"{text} [cyan]({paper})[/]")
        table.add_row(*cells)
    return table


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return escape(str(value))
    # Five digits say enough, and wide tables then fit a terminal.
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{4 if abs(value) < 10 else 2}f}".rstrip("0").rstrip(".")


def _coverage(results: Path, json_: bool) -> None:
    if json_:
        print(json.dumps({"entries": [_described(entry, results) for entry in ENTRIES]}))
        return
    table = Table(
        title="every table and figure of the paper: vgtok study NAME",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    for heading in ("item", "shows", "name", "data", "state", "last run"):
        table.add_column(heading, no_wrap=heading != "shows")
    for entry in ENTRIES:
        data = " ".join(f"[{'green' if data_present(name) else 'yellow'}]{name}[/]" for name in entry.data)
        ready = not entry.data or any(map(data_present, entry.data))
        state = "[green]ready[/]" if ready else "[yellow]needs --data[/]"
        table.add_row(entry.label, entry.title, entry.study, data or "-", state, last_run(entry.study, results) or "-")
    console = Console()
    console.print(table)
    console.print(
        "[dim]data in green is named by VGTOK_VISDRONE or VGTOK_AITODV2, in yellow by --data only; "
        f"last run is read from {escape(str(results))}[/]"
    )


def _described(entry: Entry, results: Path) -> dict[str, Any]:
    return {
        "item": entry.label,
        "title": entry.title,
        "command": f"vgtok study {entry.study}",
        "data": list(entry.data),
        "data_present": {name: data_present(name) for name in entry.data},
        "model": entry.model,
        "last_run": last_run(entry.study, results),
    }
