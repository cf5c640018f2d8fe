"""`vgtok train`: train a detector by a recipe; without one, list the recipes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
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
