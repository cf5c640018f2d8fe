"""`vgtok evaluate`: detections against a data set by its own protocol, as a table, JSON or a report."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.data.dataset import open_annotated
from vgtok.evaluate.evaluation import ClassResult, Evaluation, apply_protocol, evaluate_scored
from vgtok.evaluate.mistakes import find_mistakes
from vgtok.evaluate.predictions import read_predictions
from vgtok.evaluate.protocols import protocol_for


def evaluate(
    predictions: Annotated[
        Path, typer.Option(help="A COCO results json; image_id is the integer id, the file name or its stem.")
    ],
    data: options.AnnotatedData,
    protocol: Annotated[
        str | None,
        typer.Option(help="visdrone, visdrone-toolkit, aitodv2 or coco; the data set's own unless told otherwise."),
    ] = None,
    max_detections: Annotated[
        int | None, typer.Option(help="With --protocol coco: detections per class and image that count. [100]")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for a report as HTML and Markdown.")] = None,
    json_: options.Json = False,
) -> None:
    """Score detections: AP in points, with the cap, the images and the boxes it was taken over."""
    dataset = open_annotated(data)
    rules = protocol_for(protocol, dataset.name, max_detections)
    errors = Console(stderr=True)
    with errors.status("reading"):
        detections = read_predictions(predictions, dataset)
        scored = apply_protocol(dataset, detections, rules)
    with errors.status("evaluating"):
        result = evaluate_scored(dataset.name, scored, len(detections), rules)
    if report is not None:
        from vgtok.show.evaluation_report import write_report

        with errors.status("writing the report"):
            write_report(result, find_mistakes(scored, rules.max_detections), dataset.images, report)
    if json_:
        print(json.dumps(result.to_dict()))
    else:
        _print(result, report)


def _print(result: Evaluation, report: Path | None) -> None:
    table = Table(title=f"{result.data}, protocol {result.protocol.name}", title_justify="left")
    table.add_column("")
    for name in result.metrics:
        table.add_column(name, justify="right")
    table.add_row("points", *map(_points, result.metrics.values()))
    counts = {"AP": result.instances, **result.band_boxes}
    table.add_row("scored boxes", *(f"{counts[name]:,}" if name in counts else "" for name in result.metrics))
    console = Console()
    console.print(table)
    if result.band_classes:
        console.print(_class_table(f"{result.protocol.class_band} by class", result.band_classes))
    console.print(
        f"max detections {result.max_detections} per class and image, {result.images:,} images, "
        f"{result.instances:,} scored boxes, {result.detections:,} detections ({result.ignored:,} ignored)",
        highlight=False,
    )
    for note in result.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
    if report is not None:
        console.print(f"[dim]report: {escape(str(report / 'report.html'))}[/]", highlight=False)


def _class_table(title: str, classes: tuple[ClassResult, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("class", "boxes", "AP", "share of the mean"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for entry in classes:
        share = "-" if entry.share is None else f"{entry.share:.3f}"
        table.add_row(escape(entry.name), f"{entry.boxes:,}", _points(entry.ap), share)
    return table


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
