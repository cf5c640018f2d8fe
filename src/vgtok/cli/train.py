"""`vgtok train`: train a detector by a recipe; without one, list the recipes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.errors import InputError

if TYPE_CHECKING:
    from vgtok.train.recipe import Recipe


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, a recipe.json, or a checkpoint to branch off with --set decay_steps=STEPS; "
            "lists the recipes if omitted."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe: key=value; repeatable.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the settings of the recipe instead of training.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder of the run; an interrupted run resumes from its last checkpoint.")
    ] = Path("vgtok-train"),
    json_: options.Json = False,
) -> None:
    """Train a detector. Prefix with `accelerate launch -m` for several GPUs or nodes."""
    if recipe is None:
        _list_recipes(json_)
        return
    chosen = _find_recipe(recipe, options.key_values("--set", set_ or []))
    if list_:
        _list_settings(chosen, json_)
        return
    try:
        from vgtok.train.loop import train as run_training
    except ModuleNotFoundError as error:
        raise InputError(f"train: {error.name} is missing; pip install 'vgtok[train]'") from None

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
    console = Console(highlight=False, soft_wrap=True)
    for group, settings in recipe.describe().items():
        console.print(f"[bold]{group}[/]")
        for name, text in settings.items():
            console.print(f"  {escape(f'{name} = {_shown(values[name])}')}  [dim]{escape(text)}[/]")


def _shown(value: object) -> str:
    """Return a setting as `--set` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
