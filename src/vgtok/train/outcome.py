"""What a run is for: its averaged weights as a detector, and how it came about for whoever uses it."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import DEFAULT_BUDGET, Detector
from vgtok.detect.heads import Head
from vgtok.detect.hub import load, shipped_models
from vgtok.detect.saving import filled, read_config
from vgtok.errors import InputError, VGTokError
from vgtok.files import read_json
from vgtok.tokenize.retention import RetentionTable
from vgtok.train.journal import read_metrics
from vgtok.train.recipe import RECIPE_FILE, read_recipe
from vgtok.train.state import MODEL_FILE, checkpoints, is_checkpoint

HISTORY_FILE = "training.csv"
_HISTORY_ROWS = 40


def detector_of(
    source: Path,
    table: RetentionTable | None = None,
    licence: str = "",
    evaluations: Sequence[Mapping[str, Any]] = (),
    head: Head | None = None,
) -> Detector:
    """The detector of a run's last checkpoint, or of the checkpoint named; its head is the recipe's by default.

    It is read at the budget it was trained at, of several at the one nearest to 40%. Its licence is the one given, by
    default that of the model the run started from.
    """
    run, checkpoint = _places(source)
    try:
        config = DetectorConfig.from_dict(read_json(run / MODEL_FILE))
        recipe = _recipe(run)
        canvas, preferred = recipe["canvas"], recipe["head"]
        budget = min(recipe["budgets"], key=lambda share: abs(share - DEFAULT_BUDGET))
        weights = load_file(checkpoint / "average.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{source}: neither a training run with a checkpoint nor one of them ({error})") from None
    model = filled(config, weights, str(checkpoint))
    sides = int(canvas[0]), int(canvas[1])
    return Detector(
        model,
        canvas=sides,
        table=table,
        licence=licence or licence_of_start(recipe),
        evaluations=evaluations,
        head=head or preferred,
        budget=budget,
    )


def licence_of_start(recipe: Mapping[str, Any]) -> str:
    """The licence note a run inherits from the model it started from; empty where it started from none or from no note.

    A start that is gone since leaves a note that says so: its terms still hold.
    """
    start = str(recipe.get("start") or "")
    if not start:
        return ""
    try:
        folder = shipped_models().get(start, Path(start))
        inherited = str(read_config(folder)["licence"]) if folder.is_dir() else load(start).licence
    except (VGTokError, KeyError):
        return f"Started from {Path(start).name}, whose licence could not be read and applies to this model too"
    return inherited and f"Started from {Path(start).name}: {inherited}"


def training_section(source: Path) -> str:
    """How the model of a run was trained, as a section of its card; local paths are not included."""
    run, checkpoint = _places(source)
    recipe, steps = _recipe(run), _steps(source)
    step = int(checkpoint.name.removeprefix("step-"))
    hours = steps[-1]["seconds"] / 3600 if steps else 0.0
    # As in training: a whole model leaves nothing for encoder weights to start.
    start = recipe["start"] or recipe["encoder_weights"] or "random weights"
    rows = {
        "recipe": recipe["name"],
        "data": str(recipe["data"]).partition(":")[0],
        "rendered share": f"{recipe['synthetic']:.0%}",
        "start": Path(str(start)).name,
        "lessons": f"{step * recipe['batch']:,}, {_size(recipe)}, {step:,} steps",
        "hours": f"{hours:.2f}",
        "budgets": ", ".join(f"{budget:.0%}" for budget in recipe["budgets"]),
        "rate": f"{recipe['rate']:g}, layer decay {recipe['layer_decay']:g}, weight decay {recipe['weight_decay']:g}",
    }
    lines = ["| property | value |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(["## How it was trained", "", *lines, "", f"Losses over the run are in `{HISTORY_FILE}`.", ""])


def training_history(source: Path) -> str:
    """The losses of a run up to a checkpoint as CSV: means over forty stretches of equal length."""
    entries = _steps(source)
    columns = [name for name in entries[-1] if name not in ("step", "lessons", "seconds")] if entries else []
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", "lessons", "seconds", *columns])
    length = max(1, -(-len(entries) // _HISTORY_ROWS))
    for first in range(0, len(entries), length):
        part = entries[first : first + length]
        means = (sum(entry.get(name, 0.0) for entry in part) / len(part) for name in columns)
        last = part[-1]
        writer.writerow([last["step"], last["lessons"], f"{last['seconds']:.0f}", *(f"{mean:.5g}" for mean in means)])
    return text.getvalue()


def _steps(source: Path) -> list[dict[str, Any]]:
    """The reports of the steps that led to a checkpoint."""
    run, checkpoint = _places(source)
    last = int(checkpoint.name.removeprefix("step-"))
    return [entry for entry in read_metrics(run) if "loss" in entry and entry["step"] <= last]


def _size(recipe: Mapping[str, Any]) -> str:
    return f"crops of {recipe['crop']} px" if recipe["crop"] else "whole frames"


def _places(source: Path) -> tuple[Path, Path]:
    """A run and its last checkpoint, or the run of the checkpoint named."""
    if found := checkpoints(source):
        return source, found[-1]
    if not is_checkpoint(source):
        raise InputError(f"{source}: neither a training run with a checkpoint nor one of them (like RUN/step-001000)")
    return source.parent, source


def _recipe(run: Path) -> dict[str, Any]:
    return read_recipe(run / RECIPE_FILE).to_dict()
