"""Turn a training run into a detector: its averaged weights, and a record of the training for the model card."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_TOKENIZER
from vgtok.detect.config import DetectorConfig, Head
from vgtok.detect.detector import Detector
from vgtok.detect.loading import load, shipped_models
from vgtok.detect.saving import model_from_state, read_config
from vgtok.errors import InputError, VGTokError
from vgtok.files import read_json
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import PRESETS
from vgtok.train.recipe import RECIPE_FILE, Recipe, read_recipe
from vgtok.train.run_folder import MODEL_FILE, checkpoints, is_checkpoint, load_ema, read_metrics

HISTORY_FILE = "training.csv"
_HISTORY_ROWS = 40


def detector_from_run(
    source: Path,
    table: RetentionTable | None = None,
    license: str = "",
    evaluations: Sequence[Mapping[str, Any]] = (),
    head: Head | None = None,
    tokenizer_name: str | None = None,
) -> Detector:
    """Return the detector of a run's last checkpoint, or of one checkpoint.

    Head, tokenizer and canvas are those of the recipe; the budget is the trained one nearest to the default. The
    license is that of the model the run started from, unless one is given.
    """
    run, checkpoint = _locate(source)
    try:
        config = DetectorConfig.from_dict(read_json(run / MODEL_FILE))
        recipe = read_recipe(run / RECIPE_FILE)
        weights = load_ema(checkpoint)
    except (OSError, ValueError, SafetensorError, VGTokError) as error:
        raise InputError(f"{source}: neither a training run with a checkpoint nor one of them ({error})") from None
    return Detector(
        model_from_state(config, weights, str(checkpoint)),
        canvas=recipe.canvas,
        table=table,
        license=license or inherited_license(recipe.init_from),
        evaluations=evaluations,
        head=head or recipe.head,
        sparse_head=recipe.sparse_head,
        tokenizer_name=tokenizer_name or _tokenizer_name(recipe),
        budget=min(recipe.budgets, key=lambda share: abs(share - DEFAULT_BUDGET)),
    )


def _tokenizer_name(recipe: Recipe) -> str:
    """Return the name of the tokenizer of a recipe; the default one for settings without a name."""
    named = (name for name, settings in PRESETS.items() if settings == recipe.tokenizer_settings)
    return next(named, DEFAULT_TOKENIZER)


def inherited_license(init_from: str) -> str:
    """Return the license note of a model trained from `init_from`; empty without a start or without a note.

    If the start cannot be read any more, the note says so: its terms still apply.
    """
    if not init_from:
        return ""
    try:
        folder = shipped_models().get(init_from, Path(init_from))
        inherited = str(read_config(folder)["license"]) if folder.is_dir() else load(init_from).license
    except (VGTokError, KeyError):
        return f"Started from {Path(init_from).name}, whose license could not be read and applies to this model too"
    return inherited and f"Started from {Path(init_from).name}: {inherited}"


def training_section(source: Path) -> str:
    """Return how the model of a run was trained, as a section of its card; local paths are not included."""
    run, checkpoint = _locate(source)
    recipe, steps = read_recipe(run / RECIPE_FILE), _steps(source)
    step = int(checkpoint.name.removeprefix("step-"))
    hours = steps[-1]["seconds"] / 3600 if steps else 0.0
    # As in training: encoder weights are not used when a whole model is loaded.
    start = recipe.init_from or recipe.encoder_weights or "random weights"
    rates = f"{recipe.learning_rate:g}, layer decay {recipe.layer_decay:g}, weight decay {recipe.weight_decay:g}"
    rows = {
        "recipe": recipe.name,
        "data": recipe.data.partition(":")[0],
        "rendered share": f"{recipe.synthetic:.0%}",
        "initialized from": Path(start).name,
        "samples": f"{step * recipe.batch:,}, {_sample_size(recipe)}, {step:,} steps",
        "hours": f"{hours:.2f}",
        "budgets": ", ".join(f"{budget:.0%}" for budget in recipe.budgets),
        "learning rate": rates,
    }
    lines = ["| property | value |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(["## Training", "", *lines, "", f"The losses of the run are in `{HISTORY_FILE}`.", ""])


def training_history(source: Path) -> str:
    """Return the losses of a run up to a checkpoint as CSV: means over 40 intervals of equal length."""
    entries = _steps(source)
    columns = [name for name in entries[-1] if name not in ("step", "samples", "seconds")] if entries else []
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", "samples", "seconds", *columns])
    length = max(1, -(-len(entries) // _HISTORY_ROWS))
    for first in range(0, len(entries), length):
        part = entries[first : first + length]
        last = part[-1]
        writer.writerow(
            [last["step"], last["samples"], f"{last['seconds']:.0f}", *(_mean(part, name) for name in columns)]
        )
    return text.getvalue()


def _mean(entries: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the mean of a loss as text; nothing if the steps did not train it."""
    values = [entry[name] for entry in entries if name in entry]
    return f"{sum(values) / len(values):.5g}" if values else ""


def _steps(source: Path) -> list[dict[str, Any]]:
    """Return the metrics of the steps up to a checkpoint; of a branch also those of the run it left, if it is there."""
    run, checkpoint = _locate(source)
    last = int(checkpoint.name.removeprefix("step-"))
    own = [entry for entry in read_metrics(run) if "loss" in entry and entry["step"] <= last]
    left = Path(read_recipe(run / RECIPE_FILE).branch)
    return [*(_steps(left) if (left.parent / RECIPE_FILE).is_file() and is_checkpoint(left) else []), *own]


def _sample_size(recipe: Recipe) -> str:
    return f"crops of {recipe.crop} px" if recipe.crop else "whole images"


def _locate(source: Path) -> tuple[Path, Path]:
    """Return a run and its last checkpoint, or the run of a checkpoint and that checkpoint."""
    if found := checkpoints(source):
        return source, found[-1]
    if not is_checkpoint(source):
        raise InputError(f"{source}: neither a training run with a checkpoint nor one of them (like RUN/step-001000)")
    return source.parent, source
