"""`vgtok calibrate`: measure a retention table over a folder or data set."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.data.dataset import open_dataset
from vgtok.errors import BudgetError
from vgtok.parallel import default_workers
from vgtok.tokenize.calibrate import RANKS, Sweep, measure_table
from vgtok.tokenize.retention import RetentionTable

_SHOWN_BUDGETS = (0.8, 0.7, 0.6, 0.4, 0.2)


def calibrate(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="The table to write, a JSON file.")] = Path("retention.json"),
    name: Annotated[str | None, typer.Option(help="What the table is called; its file name unless told.")] = None,
    scorer: Annotated[list[str] | None, typer.Option(help="Scores to measure; repeatable. [tophat]")] = None,
    rank: Annotated[list[float] | None, typer.Option(help="Gate ranks to measure; repeatable.")] = None,
    canvas: options.CanvasOption = options.CANVAS_TEXT,
    workers: options.Workers = None,
    json_: options.Json = False,
) -> None:
    """Measure which percentile keeps which share of tokens; a killed run resumes where it stopped."""
    sweep = Sweep(tuple(scorer or ["tophat"]), tuple(rank or RANKS), canvas=options.canvas_size(canvas))
    dataset = open_dataset(data)
    table = measure_table(name or out.stem, dataset.images, dataset.name, sweep, out, workers or default_workers())
    if json_:
        print(json.dumps(asdict(table)))
    else:
        _print_table(table, out)


def _print_table(table: RetentionTable, out: Path) -> None:
    shown = Table(title=f"percentile per budget, {table.measured_on['images']} images, written to {out}")
    for heading in ("scorer", "gate rank", *(f"{budget:.0%}" for budget in _SHOWN_BUDGETS)):
        shown.add_column(heading, justify="right")
    for curve in table.curves:
        cells = []
        for budget in _SHOWN_BUDGETS:
            try:
                cells.append(f"{curve.percentile_for(budget):.2f}")
            except BudgetError:
                cells.append("[dim]unreachable[/]")
        shown.add_row(curve.scorer, f"{curve.rank:g}", *cells)
    Console().print(shown)
