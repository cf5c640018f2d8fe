"""Fig. A1: the dense model at several checkpoints of one training run, to see whether it has converged."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgtok.detect.saving import is_saved
from vgtok.errors import InputError
from vgtok.study.accuracy import Measured, Trial, open_trial, signed
from vgtok.study.paper_accuracy import DENSE, ZERO_SHOT
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER: tuple[tuple[str, float], ...] = (
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
"""What the paper says of its ladder: the figure prints no numbers, the text around it prints these."""


def run(inputs: Inputs) -> Result:
    """Measure every checkpoint with all tokens."""
    names = checkpoints(inputs.models or (inputs.model,))
    measured: list[tuple[str, Measured]] = []
    trial: Trial | None = None
    for name in names:
        trial = open_trial(inputs, name)
        cell = trial.measure({DENSE: trial.tokenizer(DENSE)}, f"dense, {trial.title}")[DENSE]
        measured.append((trial.title, cell))
    assert trial is not None
    small = trial.small
    best = max(measured, key=lambda entry: entry[1]["AP"] or 0.0)
    rows: list[Row] = [
        {
            "checkpoint": name,
            "step": step(name),
            "AP": cell["AP"],
            "AP50": cell["AP50"],
            small: cell[small],
            **cell.versus(*best),
        }
        for name, cell in measured
    ]
    first = rows[0]
    notes = [
        *trial.notes(),
        f"the best of {len(rows)} is {best[0]}; from the first to the last AP moves by "
        f"{signed((rows[-1]['AP'] or 0.0) - (first['AP'] or 0.0))}",
    ]
    paper: list[Row] = [{"quantity": quantity, "paper": value} for quantity, value in _PAPER]
    also = trial.also() | {"model": [name for name, _ in measured]}
    return Result(rows, notes, paper, plot=lambda figure: _plot(figure, rows, small), also=also, read=trial.read)


def checkpoints(names: tuple[str, ...]) -> list[str]:
    """The models to run; a folder that is no model itself stands for those one or two levels below it, by number."""
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
    """The last number in a checkpoint's name, which is where it stands in its run."""
    numbers = re.findall(r"\d+", Path(name).name)
    return int(numbers[-1]) if numbers else None


def _plot(figure: "Figure", rows: list[Row], small: str) -> None:
    axes: Any = figure.subplots()
    steps = [row["step"] for row in rows]
    # Names without numbers, or with the same one, leave only the order they came in.
    along = steps if None not in steps and len(set(steps)) == len(steps) else list(range(1, len(rows) + 1))
    for colour, metric in zip(PALETTE, ("AP", "AP50", small), strict=False):
        values = [row[metric] for row in rows]
        axes.plot(along, values, "o-", color=colour, label=metric)
        best = max(range(len(rows)), key=lambda number: values[number] or 0.0)
        axes.plot(along[best], values[best], "o", color=colour, markersize=11, fillstyle="none")
    if len(along) <= 12:
        axes.set_xticks(along)
    axes.set(xlabel="checkpoint", ylabel="points, all tokens", ylim=(0, None))
    axes.legend()


STUDY = Study("dense-epochs", "Fig. A1: the dense model along its training", run, takes=DETECTS)
