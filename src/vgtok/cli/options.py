"""Options, tables and answers to Ctrl-C that several commands share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.console import Console
from rich.markup import escape

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS, DEFAULT_MODEL
from vgtok.errors import InputError, RunInterruptedError
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.tokenizer import PRESETS, Tokenizer


class HeadName(StrEnum):
    """Prediction heads."""

    query = "query"
    atss = "atss"


class BudgetOver(StrEnum):
    """What a budget holds for: every image, or the mean over a stream of them."""

    image = "image"
    stream = "stream"


MODEL_HELP = "A shipped model, a saved model's folder, a Co-DETR checkpoint or a hub name."
_RUN_MODEL = f"{MODEL_HELP[:-1]}; also an exported .onnx."

Budget = Annotated[float | None, typer.Option(help="Share of the dense grid to keep, exactly.")]
ModelBudget = Annotated[
    float | None, typer.Option(help="Share of the dense grid to keep; 1 is dense (default: the model's).")
]
BudgetOverOption = Annotated[
    BudgetOver,
    typer.Option("--budget-over", help="image: each has the budget; stream: their mean has, busy ones get more."),
]
Percentile = Annotated[float | None, typer.Option(help="Score threshold, as a percentile of the image's own scores.")]
Table = Annotated[
    str | None, typer.Option(help="With --budget: retention table (name or file) to look the percentile up in.")
]
Rank = Annotated[float, typer.Option(help="Share of busy nodes the gate stops; 0 turns the gate off.")]
ScorerName = Annotated[str, typer.Option("--scorer", help="Score, e.g. tophat, fused, lambda_min, entropy.")]
GateName = Annotated[str, typer.Option("--gate", help="Gate statistic, e.g. lambda_min.")]
Splitter = Annotated[str, typer.Option(help="quadtree (16/32/64 px), single_pass or single_pass_strict (16/32 px).")]
CanvasOption = Annotated[
    str, typer.Option("--canvas", help="Canvas to resize images to, as WIDTHxHEIGHT, or 'native' for no resizing.")
]
FrameCanvas = Annotated[
    str | None,
    typer.Option(
        "--canvas",
        help="Canvas to resize images to, as WIDTHxHEIGHT; 'native' for no resizing; 'windows' to read at full "
        "resolution in parts (default: the model's canvas, windows for large images).",
    ),
]
WindowsOver = Annotated[
    int, typer.Option(min=1, metavar="PX", help="Read images by windows if a side is longer than this.")
]
Bands = Annotated[str | None, typer.Option(help="Bands of geo rasters to read as red, green and blue, e.g. 4,3,2.")]
ValueRange = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Values that become black and white, e.g. 0,3000, or percentiles (default: 2%,98% unless 8-bit).",
    ),
]
Workers = Annotated[int | None, typer.Option(help="Number of processes (default: one per core).")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[
    str, typer.Option(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES, yolo:YAML or a folder of images.")
]
AnnotatedData = Annotated[
    str, typer.Option("--data", help="visdrone:DIR, aitodv2:DIR[:SPLIT], coco:JSON:IMAGES or yolo:YAML[:SPLIT].")
]
Model = Annotated[str, typer.Option("--model", help=_RUN_MODEL)]
ModelArgument = Annotated[str | None, typer.Argument(help=f"{MODEL_HELP} Default: {DEFAULT_MODEL}.")]
Head = Annotated[HeadName | None, typer.Option(help="Prediction head (default: the model's).")]
SparseHead = Annotated[
    bool | None,
    typer.Option(
        "--sparse-head/--dense-head",
        help="Leave unsplit 64-px roots out of the head's finest level, or not (default: the model's).",
    ),
]
TokenizerName = Annotated[
    str | None,
    typer.Option(help=f"How images are split: {', '.join(PRESETS)} (default: the model's)."),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:N or mps.")]
Dtype = Annotated[str, typer.Option(help="auto (what the device is fastest in), float32, float16 or bfloat16.")]
Recursive = Annotated[bool, typer.Option("--recursive", help="Also read folders inside folders.")]
Out = Annotated[
    Path | None, typer.Option(help="Output folder (default: vgtok-runs/COMMAND, numbered per inputs and settings).")
]

CANVAS_TEXT = f"{DEFAULT_CANVAS[0]}x{DEFAULT_CANVAS[1]}"
"""The default canvas as an option spells it."""


def console_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> rich.table.Table:
    """Return a table for the terminal of plain text cells; the first column is left-aligned, the others right."""
    table = rich.table.Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        # Long names go on in the next line: they are there to be copied, never cut.
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


_SHOWN_ROWS = 20


def print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of the first rows, and how many more there are."""
    console = Console()
    console.print(console_table(title, columns, rows[:_SHOWN_ROWS]))
    if len(rows) > _SHOWN_ROWS:
        console.print(f"... and {len(rows) - _SHOWN_ROWS} more")


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
    canvas: CanvasSize,
) -> Tokenizer:
    """Return the tokenizer these options describe; the default budget without --budget and --percentile."""
    settings: dict[str, Any] = {
        "rank": rank,
        "scorer": scorer,
        "gate": gate,
        "splitter": splitter,
        "canvas": canvas,
    }
    if table is not None:
        if budget is None or percentile is not None:
            raise InputError("--table: goes with --budget, and without --percentile")
        return Tokenizer.calibrated(table, budget, **settings)
    if budget is None and percentile is None:
        budget = DEFAULT_BUDGET
    return Tokenizer(budget=budget, percentile=percentile, **settings)


@contextmanager
def said_when_interrupted(kept: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C in the block into one line that says what is kept, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted: {kept()}") from None


def one_model(argument: str | None, option: str | None) -> str | None:
    """Return the model of a command that takes it as an argument and as --model; None if neither is given."""
    if argument is not None and option is not None and argument != option:
        raise InputError(f"--model: '{option}' is named beside '{argument}'; name one model")
    return argument if option is None else option
