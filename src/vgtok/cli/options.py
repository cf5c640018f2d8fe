"""Options, inputs and tables that several commands share."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.markup import escape

from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.tokenizer import Tokenizer


class HeadName(StrEnum):
    """Prediction heads."""

    query = "query"
    atss = "atss"


_MODEL = "A shipped model, a saved model's folder, a Co-DETR checkpoint or a hub name."

Budget = Annotated[float | None, typer.Option(help="Share of the dense grid to keep, exactly.")]
ModelBudget = Annotated[
    float | None, typer.Option(help="Share of the dense grid to keep; 1 is dense (default: the model's).")
]
Percentile = Annotated[float | None, typer.Option(help="Score threshold, as a percentile of the image's own scores.")]
Table = Annotated[
    str | None, typer.Option(help="With --budget: retention table (name or file) to look the percentile up in.")
]
Rank = Annotated[float, typer.Option(help="Share of busy nodes the gate stops; 0 turns the gate off.")]
ScorerName = Annotated[str, typer.Option("--scorer", help="Score, e.g. tophat, fused, lambda_min, entropy.")]
GateName = Annotated[str, typer.Option("--gate", help="Gate statistic, e.g. lambda_min.")]
Splitter = Annotated[str, typer.Option(help="quadtree (16/32/64 px) or single_pass (16/32 px).")]
CanvasOption = Annotated[
    str, typer.Option("--canvas", help="Canvas to resize images to, as WIDTHxHEIGHT, or 'native' for no resizing.")
]
Workers = Annotated[int | None, typer.Option(help="Number of processes (default: one per core).")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[
    str, typer.Option(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES, yolo:YAML or a folder of images.")
]
AnnotatedData = Annotated[
    str, typer.Option("--data", help="visdrone:DIR, aitodv2:DIR[:SPLIT], coco:JSON:IMAGES or yolo:YAML[:SPLIT].")
]
Model = Annotated[str, typer.Option("--model", help=_MODEL)]
ModelArgument = Annotated[str, typer.Argument(help=_MODEL)]
Head = Annotated[HeadName | None, typer.Option(help="Prediction head (default: the model's).")]
Out = Annotated[Path, typer.Option(help="Output folder.")]

CANVAS_TEXT = f"{DEFAULT_CANVAS[0]}x{DEFAULT_CANVAS[1]}"
"""The default canvas as an option spells it."""


def console_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> rich.table.Table:
    """Return a table for the terminal of plain text cells; the first column is left-aligned, the others right."""
    table = rich.table.Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse a repeatable option of key=value texts."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: write it as key=value")
        values[key.strip()] = value.strip()
    return values


def canvas_size(text: str) -> CanvasSize:
    """Parse a --canvas option."""
    if text == "native":
        return "native"
    return image_size(text)


def image_size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT."""
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdigit() and height.isdigit()):
        raise InputError(f"'{text}' is not WIDTHxHEIGHT in pixels, e.g. {CANVAS_TEXT}")
    return int(width), int(height)


def tokenizer_from(
    budget: float | None,
    percentile: float | None,
    table: str | None,
    rank: float,
    scorer: str,
    gate: str,
    splitter: str,
    canvas: str,
) -> Tokenizer:
    """Return the tokenizer these options describe; the default budget without --budget and --percentile."""
    settings: dict[str, Any] = {
        "rank": rank,
        "scorer": scorer,
        "gate": gate,
        "splitter": splitter,
        "canvas": canvas_size(canvas),
    }
    if table is not None:
        if budget is None or percentile is not None:
            raise InputError("--table: goes with --budget, and without --percentile")
        return Tokenizer.calibrated(table, budget, **settings)
    if budget is None and percentile is None:
        budget = DEFAULT_BUDGET
    return Tokenizer(budget=budget, percentile=percentile, **settings)


def expand_inputs(argument: str, suffixes: AbstractSet[str] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the files an argument stands for, sorted; of a folder, those with one of the suffixes."""
    try:
        return _expanded(argument, suffixes)
    except OSError as error:
        raise InputError(f"{argument}: cannot be read ({error.strerror or error})") from None


def _expanded(argument: str, suffixes: AbstractSet[str]) -> list[Path]:
    path = Path(argument)
    if path.is_dir():
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in suffixes)
        if not inside:
            raise InputError(f"{path}: holds none of {', '.join(sorted(suffixes))}")
        return inside
    if has_magic(argument) and not path.exists():
        matches = sorted(glob(argument, recursive=True))
        if not matches:
            raise InputError(f"{argument}: matches no file")
        return [Path(match) for match in matches]
    return [path]


def output_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for the results of each file: its stem, with a number if two files share it."""
    taken: set[str] = set()
    names = {}
    for path in paths:
        name, number = path.stem, 2
        while name in taken:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name)
        names[path] = name
    return names
