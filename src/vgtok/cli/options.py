"""Options and inputs that several verbs share."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated, Any

import typer

from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.tokenizer import Tokenizer

Budget = Annotated[float | None, typer.Option(help="Share of the dense grid every image gets, exactly.")]
Percentile = Annotated[float | None, typer.Option(help="Threshold as a percentile of the image's own scores.")]
Table = Annotated[
    str | None, typer.Option(help="With --budget: take the percentile from this retention table (name or file).")
]
Rank = Annotated[float, typer.Option(help="Share of busy nodes the gate stops; 0 is no gate.")]
ScorerName = Annotated[str, typer.Option("--scorer", help="Score, e.g. tophat, fused, lambda_min, entropy.")]
GateName = Annotated[str, typer.Option("--gate", help="Gate statistic, e.g. lambda_min.")]
Splitter = Annotated[str, typer.Option(help="quadtree (16/32/64 px) or single_pass (16/32 px).")]
CanvasOption = Annotated[
    str, typer.Option("--canvas", help="Frame to fit inside as WIDTHxHEIGHT, or 'native' for the image's own size.")
]
Workers = Annotated[int | None, typer.Option(help="Processes; one per core unless told otherwise.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable result on standard output.")]
Data = Annotated[
    str, typer.Option(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES, yolo:YAML or a folder of images.")
]
AnnotatedData = Annotated[
    str, typer.Option("--data", help="visdrone:DIR, aitodv2:DIR[:SPLIT], coco:JSON:IMAGES or yolo:YAML[:SPLIT].")
]
Model = Annotated[
    str, typer.Option("--model", help="A saved model's folder, a Co-DETR checkpoint, a shipped model or a hub name.")
]
Out = Annotated[Path, typer.Option(help="Where results go.")]

CANVAS_TEXT = f"{DEFAULT_CANVAS[0]}x{DEFAULT_CANVAS[1]}"
"""The default canvas as an option spells it."""


def canvas_size(text: str) -> CanvasSize:
    """Read a --canvas option."""
    if text == "native":
        return "native"
    return frame_size(text)


def frame_size(text: str) -> tuple[int, int]:
    """Read WIDTHxHEIGHT."""
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
    """The tokenizer these options describe; 40% of the tokens when nothing is said."""
    settings: dict[str, Any] = {
        "rank": rank,
        "scorer": scorer,
        "gate": gate,
        "splitter": splitter,
        "canvas": canvas_size(canvas),
    }
    if table is not None:
        if budget is None or percentile is not None:
            raise InputError("--table: goes with --budget, the share it is inverted for")
        return Tokenizer.calibrated(table, budget, **settings)
    if budget is None and percentile is None:
        budget = DEFAULT_BUDGET
    return Tokenizer(budget=budget, percentile=percentile, **settings)


def expanded(argument: str, suffixes: AbstractSet[str] = IMAGE_SUFFIXES) -> list[Path]:
    """The files an argument stands for, sorted; of a folder those with one of the suffixes."""
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
    """A name per file for its results: its stem, with a number where two files share one."""
    taken: set[str] = set()
    names = {}
    for path in paths:
        name, number = path.stem, 2
        while name in taken:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name)
        names[path] = name
    return names
