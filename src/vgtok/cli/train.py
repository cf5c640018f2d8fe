"""`vgtok train`: follow a recipe; alone, list them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.errors import InputError

if TYPE_CHECKING:
    from vgtok.train.recipe import Recipe


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe by name, a recipe.json, or a checkpoint of a run to branch off with --set decay=STEPS; "
            "none lists the recipes."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field of the recipe: key=value, as often as needed.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run's folder; a run that was stopped goes on from it.")] = Path(
        "vgtok-train"
    ),
    json_: options.Json = False,
) -> None:
    """Train a detector; several GPUs or nodes by the same words after `accelerate launch -m vgtok`."""
    if recipe is None:
        _list(json_)
        return
    chosen = _chosen(recipe, _settings(set_ or []))
    try:
        from vgtok.train.loop import train as follow
    except ModuleNotFoundError as error:
        raise InputError(f"train: {error.name} is missing; pip install 'vgtok[train]'") from None

    folder = follow(chosen, out)
    if folder is None:
        return
    if json_:
        print(json.dumps({"recipe": chosen.to_dict(), "run": str(out), "checkpoint": str(folder)}))
    else:
        print(f"{folder}: trained; save it as a model with: vgtok convert run {out} MODEL")


def _chosen(recipe: str, settings: dict[str, str]) -> "Recipe":
    """A recipe by name, from a file, or that of the run a checkpoint belongs to, as a branch that decays."""
    from vgtok.train.recipe import branch_recipe, read_recipe, recipe_named

    path = Path(recipe)
    if path.is_dir():
        return branch_recipe(path, settings)
    return (read_recipe(path) if path.suffix == ".json" else recipe_named(recipe)).with_settings(settings)


def _settings(texts: list[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: write it as key=value")
        settings[key.strip()] = value.strip()
    return settings


def _list(json_: bool) -> None:
    from vgtok.train.recipe import RECIPES

    if json_:
        print(json.dumps({name: recipe.to_dict() for name, recipe in RECIPES.items()}))
        return
    table = Table(title="recipes: vgtok train NAME --set key=value", title_justify="left")
    for heading in ("name", "detector", "data", "budgets", "length", "batch", "rate"):
        table.add_column(heading)
    for name, recipe in RECIPES.items():
        length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs} epochs"
        budgets = ", ".join(f"{budget:g}" for budget in recipe.budgets)
        data = recipe.data or "--set data="
        table.add_row(
            name, recipe.detector, escape(data), budgets, length, str(recipe.batch), f"{recipe.learning_rate:g}"
        )
    Console().print(table)
