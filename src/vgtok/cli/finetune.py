"""`vgtok finetune`: your own classes from a data set, in one command."""

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.runs import run_folder


def finetune(
    data: Annotated[str, typer.Argument(help="Data set: yolo:data.yaml, coco:FILE:DIR or visdrone:DIR.")],
    model: Annotated[str, typer.Option(help="Model to start from: shipped, a folder, or a hub name.")] = DEFAULT_MODEL,
    minutes: Annotated[float, typer.Option(help="Minutes to train, evaluations included.")] = 20.0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the training images, instead of --minutes.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Token budget to train for and to evaluate at (default: the model's).")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(help="Data set to validate on (default: the val split, or images kept apart).")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", help="Start a class from another of the model: minibus=van; repeatable."),
    ] = None,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Finetune a detector on your own classes. Run the same command again to resume."""
    try:
        from vgtok.train.finetune import finetune as run_finetune
    except ModuleNotFoundError as error:
        raise InputError(f"finetune: {error.name} is missing; pip install 'vgtok[train]'") from None

    settings: dict[str, Any] = {
        "minutes": minutes,
        "epochs": epochs,
        "budget": budget,
        "validation": validation,
        "mapping": options.key_values("--map", map_ or []),
    }
    out = out or run_folder("finetune", [data, model], settings)
    with options.said_when_interrupted(lambda: f"what is finished is kept in {out}; run the same command to go on"):
        result = run_finetune(data, model, out=out, **settings)
    use = shlex.join(["vgtok", "detect", str(result.example), "--model", str(result.model)])
    if json_:
        document = {"model": str(result.model), "report": str(result.report), "kept": result.kept, "use": use}
        print(json.dumps({**document, **result.evaluation.to_dict()}))
        return
    console = Console(highlight=False, soft_wrap=True)
    rows = [
        (entry.name, result.kept.get(entry.name, "new"), f"{entry.boxes:,}", _points(entry.ap), _points(entry.ap50))
        for entry in result.evaluation.classes
    ]
    title = f"AP on {result.evaluation.images:,} validation images"
    console.print(options.console_table(title, ("class", "started from", "boxes", "AP", "AP50"), rows))
    console.print(f"report: {escape(str(result.report / 'report.html'))}")
    console.print(escape(use))


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
