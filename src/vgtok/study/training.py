"""Training seen from outside: Fig. A1, the checkpoints of one run, and whether the detector can learn at all.

The first measures saved models with all tokens. The second trains co-detr-vit-tiny on eight rendered scenes with
`vgtok.train`, with and without its auxiliary heads, until the query head reaches the goal.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from vgtok.data.convert import write_rendered
from vgtok.data.dataset import open_annotated
from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.detect.saving import is_saved
from vgtok.errors import InputError
from vgtok.study.accuracy import Measured, Trial, open_trials, signed
from vgtok.study.cells import TRAINING, code_digest
from vgtok.study.paper import DENSE, ZERO_SHOT
from vgtok.study.result import DETECTS, RENDERED, Draw, Inputs, Line, Panel, Read, Result, Row, Study, line_plot
from vgtok.train.loop import train
from vgtok.train.recipe import Recipe
from vgtok.train.run_folder import read_metrics

_REPORTED: tuple[tuple[str, float], ...] = (
    ("AP of the checkpoint reported, the highest of eleven", ZERO_SHOT["visdrone"][DENSE, 1.0]["AP"]),
    ("APS of the checkpoint reported", ZERO_SHOT["visdrone"][DENSE, 1.0]["APS"]),
    ("AP gained after epoch 12, in all", 0.32),
    ("AP gained in the last twelve epochs", 0.10),
    ("range of AP from epoch 22 to 28", 0.03),
    ("schedule restarted at epoch 28: lowest AP", 47.70),
    ("schedule restarted at epoch 28: highest AP", 48.30),
    ("schedule restarted at epoch 28: last AP", 48.15),
    ("schedule restarted at epoch 28: APS at its best", 39.66),
)
"""What the text of the paper says of its run; the figure prints no numbers."""


def dense_epochs(inputs: Inputs) -> Result:
    """Measure every checkpoint with all tokens."""
    names = checkpoints(inputs.models or (inputs.model,))
    measured: list[tuple[Trial, Measured]] = []
    for name in names:
        for trial in open_trials(inputs, name):
            cell = trial.measure({DENSE: trial.tokenizer(DENSE)}, f"dense, {trial.title}, {trial.head} head")[DENSE]
            measured.append((trial, cell))
    own = measured[0][0]
    rows: list[Row] = []
    notes = []
    for head in dict.fromkeys(trial.head for trial, _ in measured):
        along = [(trial.title, cell) for trial, cell in measured if trial.head == head]
        best = max(along, key=lambda entry: entry[1]["AP"] or 0.0)
        for name, cell in along:
            row = cell.row({"head": head, "checkpoint": name, "step": step(name)}, ("AP", "AP50", own.small), {})
            rows.append(row | cell.versus(*best))
        first, last = along[0][1]["AP"] or 0.0, along[-1][1]["AP"] or 0.0
        notes.append(
            f"{head} head: the best of {len(along)} is {best[0]}; from the first to the last AP moves by "
            f"{signed(last - first)}"
        )
    printed = [{"quantity": quantity, "paper": value} for quantity, value in _REPORTED]
    also = {"model": list(dict.fromkeys(trial.title for trial, _ in measured))}
    drawn = [row for row in rows if row["head"] == own.head]
    return own.result(rows, notes, _along(drawn, ("AP", "AP50", own.small)), paper_only=printed, also=also)


def _along(rows: list[Row], metrics: Sequence[str]) -> Draw:
    """Draw metrics along the checkpoints, the best of each larger."""
    steps = [row["step"] for row in rows]
    # Names without numbers, or with the same one, are drawn in the order given.
    x = steps if None not in steps and len(set(steps)) == len(steps) else list(range(1, len(rows) + 1))
    lines = []
    for number, metric in enumerate(metrics):
        values = [row[metric] for row in rows]
        best = max(range(len(rows)), key=lambda place: values[place] or 0.0)
        lines.append(Line(x, values, metric, number))
        looks = {"markersize": 11, "fillstyle": "none"}
        lines.append(Line([x[best]], [values[best]], None, number, "o", looks=looks))
    axes: dict[str, Any] = {"xlabel": "checkpoint", "ylabel": "points, all tokens", "ylim": (0, None)}
    return line_plot(Panel(lines, axes | ({"xticks": x} if len(x) <= 12 else {})))


def checkpoints(names: tuple[str, ...]) -> list[str]:
    """Return the models to run; a folder that is no model stands for those one or two levels below it, by number."""
    chosen: list[str] = []
    for name in names:
        folder = Path(name)
        if not folder.is_dir() or is_saved(folder):
            chosen.append(name)
            continue
        inside = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if is_saved(path)]
        if not inside:
            raise InputError(f"--model: '{name}' is neither a saved model nor a folder that holds any")
        chosen += map(str, sorted(inside, key=lambda path: (step(path.name) or 0, str(path))))
    return chosen


def step(name: str) -> int | None:
    """Return the last number in the name of a checkpoint, its place in the run."""
    numbers = re.findall(r"\d+", Path(name).name)
    return int(numbers[-1]) if numbers else None


_GOAL = 0.95
_SECONDS = 1800.0
"""Training time of a run at most, without evaluation."""

_SCENES, _STEPS, _EVERY = 8, 1500, 100
_SMALLEST = 4.0
"""Scenes where the border cuts an object to fewer pixels than this are skipped."""

_OVERFIT = Recipe(
    name="overfit",
    detector="co-detr-vit-tiny",
    canvas=(256, 256),
    flip=False,
    # Scenes this small need no more queries, and each costs the decoder.
    crop_queries=150,
    budgets=(0.7,),
    learning_rate=3e-4,
    layer_decay=1.0,
    weight_decay=1e-4,
    max_grad_norm=1.0,
    warmup_steps=100,
    # How long a run will be is not known when it starts, so its rate stays and the running average settles it.
    schedule="constant",
    ema_momentum=0.02,
    ema_warmup=100,
    precision="fp32",
    checkpoint_every=_EVERY,
    evaluate_every=_EVERY,
    evaluate_images=_SCENES,
    evaluate_budget=0.7,
)
_HEADS: dict[str, tuple[Any, ...]] = {"auxiliary": ("roi", "atss"), "query-only": ()}


def overfit(inputs: Inputs) -> Result:
    """Train with and without auxiliary heads, each until AP50 reaches the goal or its steps or time are up."""
    # Runs of other code are not resumed.
    folder = inputs.out / f"overfit-{code_digest(TRAINING)[:16]}"
    data = scenes(folder / "scenes")
    recipe = replace(_OVERFIT, data=data, validation=data)
    logs = {name: learn(replace(recipe, auxiliary=heads), folder / name) for name, heads in _HEADS.items()}
    rows = [_learned(name, log) for name, log in logs.items()]
    images = open_annotated(data)
    boxes = sum(len(images.annotations(index).labels) for index in range(len(images.images)))
    notes = [
        f"{recipe.detector} from random weights, {_SCENES} scenes of {recipe.canvas[0]} px with {boxes} objects, "
        f"{recipe.budgets[0]:.0%} of tokens",
        f"scenes where an object is under {_SMALLEST:.0f} px wide or high, as the border cuts them, or with fewer than "
        "three objects are skipped; the scenes have no people",
        f"a run stops at an AP50 of {_GOAL}, after {_STEPS} steps or {_SECONDS / 60:.0f} minutes of training",
        *(f"{name}: rose from first to last: {', '.join(rose)}" for name, log in logs.items() if (rose := risen(log))),
    ]
    return Result(rows, notes, plot=_learning(logs), also={"logs": logs}, read=Read(RENDERED, _SCENES))


def scenes(folder: Path) -> str:
    """Render eight seeded scenes of traffic into a folder; return them as the name of a data set.

    They have no people, who are slivers of a few pixels at this scale.
    """
    config = SceneConfig(pixels_per_meter=12.0, traffic=1.0, crowd=0.0)
    seeds: list[int] = []
    for seed in itertools.count():
        boxes = render_scene(seed, *_OVERFIT.canvas, config).boxes
        if len(boxes) >= 3 and (boxes[:, 2:] - boxes[:, :2]).min() >= _SMALLEST:
            seeds.append(seed)
        if len(seeds) == _SCENES:
            break
    return write_rendered(folder, seeds, *_OVERFIT.canvas, config)


def learn(recipe: Recipe, run: Path) -> list[dict[str, Any]]:
    """Train in a folder, or resume there, until the run is done; return its log, an entry for every evaluation."""
    console = Console(stderr=True)
    while not done(log := read_log(run)):
        train(replace(recipe, steps=(log[-1]["step"] if log else 0) + recipe.evaluate_every), run)
        last = read_log(run)[-1]
        console.print(
            f"overfit {run.name}: step {last['step']}, {last['seconds']:.0f} s, "
            f"loss {sum(last['losses'].values()):.2f}, AP50 {last['ap50']:.3f}",
            highlight=False,
        )
    return log


def read_log(run: Path) -> list[dict[str, Any]]:
    """Return, for every evaluation of a run, its step, seconds, AP50 and the mean losses since the one before."""
    log: list[dict[str, Any]] = []
    steps: list[Mapping[str, Any]] = []
    for entry in read_metrics(run):
        if "AP50" not in entry:
            steps.append(entry)
            continue
        losses = {name: sum(step[name] for step in steps) / len(steps) for name in steps[-1] if "/" in name}
        seconds, ap50 = steps[-1]["seconds"], entry["AP50"] / 100
        log.append({"step": entry["step"], "seconds": seconds, "ap50": ap50, "losses": losses})
        steps = []
    return log


def done(log: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the goal was reached, or the steps or the time are up."""
    return bool(log) and (log[-1]["ap50"] >= _GOAL or log[-1]["step"] >= _STEPS or log[-1]["seconds"] >= _SECONDS)


def risen(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the losses that are not lower at the end of a log than at its start."""
    if not log:
        return []
    first, last = log[0]["losses"], log[-1]["losses"]
    return [kind for kind in first if not last[kind] < first[kind]]


def _learned(name: str, log: Sequence[Mapping[str, Any]]) -> Row:
    last = log[-1]
    totals = [sum(entry["losses"].values()) for entry in (log[0], last)]
    return {
        "heads": name,
        "steps": last["step"],
        "minutes": last["seconds"] / 60,
        "ap50": last["ap50"],
        "goal": _GOAL,
        "first_loss": totals[0],
        "last_loss": totals[1],
        "losses": len(last["losses"]),
        "losses_that_fell": len(last["losses"]) - len(risen(log)),
    }


def _learning(logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Draw:
    """Draw AP50 and the losses of the queries, which both runs have, along the steps."""
    precision, loss = [], []
    for number, (name, log) in enumerate(logs.items()):
        steps = [entry["step"] for entry in log]
        queries = [sum(v for kind, v in e["losses"].items() if kind.startswith("queries/")) for e in log]
        precision.append(Line(steps, [entry["ap50"] for entry in log], name, number, "-"))
        loss.append(Line(steps, queries, name, number, "-"))
    return line_plot(
        Panel(precision, {"xlabel": "steps", "ylabel": "AP50 of the query head", "ylim": (0, 1)}, {"": _GOAL}),
        Panel(loss, {"xlabel": "steps", "ylabel": "loss of the queries", "yscale": "log"}),
    )


STUDIES = (
    Study(
        "dense-epochs",
        "Fig. A1: the dense model along its training",
        dense_epochs,
        takes=DETECTS,
        frames=0,
        both_heads=True,
    ),
    Study("overfit", "co-detr-vit-tiny on eight scenes, with and without auxiliary heads", overfit, takes=(), frames=0),
)
