"""Table A13: all tokens and 70% of them at four input resolutions of one checkpoint."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.study.accuracy import Measured, Trial, open_trial, signed
from vgtok.study.cells import Reader
from vgtok.study.paper_accuracy import DENSE
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = (1536, 2048, 2304, 2560)
"""Long sides of the canvas; on a model of another canvas the same ratios to its own."""

_PERCENTILE = 40.0
"""Where Single-pass, the tokenizer the paper measured here, keeps 70%."""

_PAPER: dict[int, tuple[float, float, float, float, float]] = {
    1536: (45.52, 35.97, 44.25, 34.94, 1.28),
    2048: (48.38, 39.63, 47.58, 38.85, 0.80),
    2304: (48.86, 40.39, 48.14, 39.85, 0.72),
    2560: (49.39, 41.04, 48.70, 40.45, 0.69),
}
"""AP and APS at 100%, at 70%, and the gap of AP, taken on unrounded values."""


def run(inputs: Inputs) -> Result:
    """Measure both budgets at every resolution."""
    trial = open_trial(inputs)
    readers: dict[tuple[int, str], Reader] = {}
    for side in SIDES:
        canvas = _canvas(trial, side)
        readers[side, "100"] = trial.tokenizer(DENSE, canvas=canvas)
        readers[side, "70"] = trial.single_pass(_PERCENTILE, canvas=canvas)
    cells = trial.measure(readers, "resolution")
    rows = [_row(trial, side, cells[side, "100"], cells[side, "70"]) for side in SIDES]
    gaps = [row["gap"] for row in rows]
    narrows = all(a is not None and b is not None and b <= a for a, b in pairwise(gaps))
    notes = [
        *trial.notes(),
        f"the gap {'narrows at every step, as in the paper' if narrows else 'does not narrow at every step here'}: "
        f"{', '.join(map(signed, gaps))}; paper {', '.join(signed(_PAPER[side][4]) for side in SIDES)}",
        "70% is Single-pass at percentile 40, as in the paper; low and high belong to the gap",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows, trial.small), also=trial.also(), read=trial.read)


def _canvas(trial: Trial, side: int) -> tuple[int, int]:
    long, short = DEFAULT_CANVAS if trial.canvas == "native" else trial.canvas
    return round(long * side / DEFAULT_CANVAS[0]), round(short * side / DEFAULT_CANVAS[0])


def _row(trial: Trial, side: int, dense: Measured, fewer: Measured) -> Row:
    small = trial.small
    paper = (None,) * 5 if trial.dataset.name == "aitodv2" else _PAPER[side]
    gap, low, high = dense.minus(fewer, "AP")
    return {
        "canvas": "x".join(map(str, _canvas(trial, side))),
        "paper_AP_100": paper[0],
        "AP_100": dense["AP"],
        f"paper_{small}_100": paper[1],
        f"{small}_100": dense[small],
        "retained": fewer.retained,
        "paper_AP_70": paper[2],
        "AP_70": fewer["AP"],
        f"paper_{small}_70": paper[3],
        f"{small}_70": fewer[small],
        "paper_gap": paper[4],
        "gap": gap,
        "low": low,
        "high": high,
    }


def _plot(figure: "Figure", rows: list[Row], small: str) -> None:
    panels: Any = figure.subplots(1, 2)
    widths = [int(row["canvas"].split("x")[0]) for row in rows]
    for axes, metric in zip(panels, ("AP", small), strict=True):
        for colour, share in zip(PALETTE, ("100", "70"), strict=False):
            axes.plot(widths, [row[f"{metric}_{share}"] for row in rows], "o-", color=colour, label=f"{share}%")
            printed = [row[f"paper_{metric}_{share}"] for row in rows]
            if None not in printed:
                axes.plot(widths, printed, "x--", color=colour, label=f"{share}%, paper")
        axes.set(xlabel="long side of the canvas, px", ylabel=metric, ylim=(0, None))
    panels[0].legend(fontsize=8)


STUDY = Study("resolution", "Table A13: two budgets at four input resolutions", run, takes=DETECTS)
