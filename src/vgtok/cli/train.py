"""`vgtok train`: train a detector by a recipe; `vgtok finetune`: your own classes from a data set, in one command."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.runs import run_folder

if TYPE_CHECKING:
    from vgtok.train.recipe import Recipe


def _recipes() -> list[str]:
    from vgtok.train.recipe import RECIPES

    return list(RECIPES)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, a recipe.json, or a checkpoint to branch off with --set decay_steps=STEPS; "
            "lists the recipes if omitted.",
            autocompletion=_recipes,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe: key=value; repeatable.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the settings of the recipe instead of training.")] = False,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Train a detector; the same command resumes. Prefix with `accelerate launch -m` for several GPUs or nodes."""
    if recipe is None:
        _list_recipes(json_)
        return
    chosen = _find_recipe(recipe, options.key_values("--set", set_ or []))
    if list_:
        _list_settings(chosen, json_)
        return
    try:
        from vgtok.train.loop import CHANGEABLE
        from vgtok.train.loop import train as run_training
    except ModuleNotFoundError as error:
        raise InputError(f"train: {error.name} is missing; pip install 'vgtok[train]'") from None

    if out is None:
        fixed = {name: value for name, value in chosen.to_dict().items() if name not in CHANGEABLE}
        out = run_folder("train", [], fixed)
    folder = run_training(chosen, out)
    if folder is None:
        return
    if json_:
        print(json.dumps({"recipe": chosen.to_dict(), "run": str(out), "checkpoint": str(folder)}))
    else:
        print(f"{folder}: trained; save it as a model with: vgtok convert run {out} MODEL")


def _find_recipe(recipe: str, settings: dict[str, str]) -> "Recipe":
    """Return a recipe by name, from a file, or branched off a checkpoint."""
    from vgtok.train.recipe import branch_recipe, read_recipe, recipe_named

    path = Path(recipe)
    if path.is_dir():
        return branch_recipe(path, settings)
    return (read_recipe(path) if path.suffix == ".json" else recipe_named(recipe)).with_settings(settings)


def _list_recipes(json_: bool) -> None:
    from vgtok.train.recipe import RECIPES

    if json_:
        print(json.dumps({name: recipe.to_dict() for name, recipe in RECIPES.items()}))
        return
    rows = [
        (
            name,
            recipe.detector,
            recipe.data or "--set data=",
            f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs} epochs",
        )
        for name, recipe in RECIPES.items()
    ]
    console = Console()
    columns = ("name", "detector", "data", "length")
    console.print(options.console_table("recipes: vgtok train NAME --set key=value", columns, rows))
    console.print("vgtok train NAME --list lists the settings of a recipe", highlight=False)


def _list_settings(recipe: "Recipe", json_: bool) -> None:
    values = recipe.to_dict()
    if json_:
        print(json.dumps(values))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, settings in recipe.describe().items():
        table.add_row(f"[bold]{escape(group)}[/]")
        for name, text in settings.items():
            value = f"{escape(_shown(values[name]))} [dim]-[/] " if _shown(values[name]) else ""
            table.add_row(f"  {escape(name)}", f"{value}[dim]{escape(text)}[/]")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"change one with: vgtok train {escape(recipe.name)} --set NAME=VALUE")


def _shown(value: object) -> str:
    """Return a setting as `--set` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
