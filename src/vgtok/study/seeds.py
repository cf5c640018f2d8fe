"""Table A10: seed replicates and the seed floor, computed again from the cells the paper prints.

Only rounded numbers are in print, so each result comes with the lowest and highest value they allow.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vgtok.evaluate.resampling import (
    RUNS,
    mean_and_deviation,
    pooled_deviation,
    seed_floor,
    standard_error_of_difference,
)
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HALF_STEP = 0.005
"""Half the last printed digit: a printed value may be off by that much."""

_DEVIATION_STEP = _HALF_STEP * math.sqrt((RUNS - 1 / RUNS) / (RUNS - 1))
"""How far the deviation of RUNS rounded runs can lie from that of the exact ones."""

_RUNS_AT_40: dict[str, dict[str, tuple[tuple[float, float, float], float, float]]] = {
    "AP": {
        "Top-hat": ((43.66, 43.76, 43.77), 43.73, 0.06),
        "Top-hat + gate": ((44.11, 44.26, 44.30), 44.22, 0.10),
        "Top-hat (+) lambda": ((43.65, 43.90, 43.99), 43.85, 0.18),
        "Top-hat (+) lambda + gate": ((43.96, 43.95, 43.91), 43.94, 0.03),
    },
    "APS": {
        "Top-hat": ((34.89, 34.93, 35.16), 34.99, 0.15),
        "Top-hat + gate": ((35.35, 35.65, 35.68), 35.56, 0.18),
        "Top-hat (+) lambda": ((34.88, 35.13, 35.29), 35.10, 0.21),
        "Top-hat (+) lambda + gate": ((35.24, 35.09, 35.21), 35.18, 0.08),
    },
}
"""Table A10: three runs, their printed mean and deviation."""

_DEVIATIONS = {
    "AP": {
        "Single-pass": (0.06, 0.06, 0.12, 0.09),
        "Top-hat": (0.17, 0.16, 0.12, 0.06, 0.07),
        "Top-hat + gate": (0.10, 0.03, 0.07, 0.10, 0.11),
        "Top-hat (+) lambda": (0.04, 0.08, 0.13, 0.18, 0.12),
        "Top-hat (+) lambda + gate": (0.02, 0.08, 0.05, 0.03, 0.04),
    },
    "APS": {
        "Single-pass": (0.04, 0.06, 0.09, 0.11),
        "Top-hat": (0.26, 0.18, 0.18, 0.15, 0.07),
        "Top-hat + gate": (0.21, 0.08, 0.11, 0.18, 0.08),
        "Top-hat (+) lambda": (0.06, 0.12, 0.17, 0.21, 0.09),
        "Top-hat (+) lambda + gate": (0.05, 0.11, 0.16, 0.08, 0.02),
    },
}
"""Tables A4 and A5: the printed deviations at 80, 70, 60, 40 and 20%; Single-pass cannot reach 20%."""

_FLOORS = {"AP": (0.0974, 0.0795, 0.16), "APS": (0.1342, 0.1095, 0.22)}
"""Pooled deviation, standard error of a difference and seed floor, as the caption of Table A10 has them."""


def run(_: Inputs) -> Result:
    """Recompute means, deviations and the floor; no data is needed."""
    rows = [row for metric in _FLOORS for row in (*_cells(metric), *_pooled(metric))]
    outside = [row for row in rows if not row["lowest"] <= row["paper"] <= row["highest"]]
    notes = [
        "lowest and highest are what the printed digits allow: runs, means and deviations are printed to 0.01",
        f"{len(rows) - len(outside)} of {len(rows)} printed values lie between them",
        *(f"{row['quantity']}, {row['metric']}: the printed cells do not allow {row['paper']}" for row in outside),
        *(_reach(metric) for metric in _FLOORS),
        *(_separation(metric) for metric in _FLOORS),
    ]
    return Result(rows, notes, plot=_plot, read=None)


def _cells(metric: str) -> list[Row]:
    rows: list[Row] = []
    for name, (runs, printed_mean, printed_deviation) in _RUNS_AT_40[metric].items():
        mean, deviation = mean_and_deviation(runs)
        # The printed value is rounded once more, so it may lie half a step further out.
        rows.append(_row(f"mean at 40%, {name}", metric, printed_mean, mean, 2 * _HALF_STEP, 2 * _HALF_STEP))
        slack = _DEVIATION_STEP + _HALF_STEP
        rows.append(_row(f"deviation at 40%, {name}", metric, printed_deviation, deviation, slack, slack))
    return rows


def _pooled(metric: str) -> list[Row]:
    deviations = _all_deviations(metric)
    pooled = pooled_deviation(deviations)
    lowest, highest = _bounds(deviations)
    printed = _FLOORS[metric]
    steps: tuple[tuple[str, Callable[[float], float], float], ...] = (
        ("pooled deviation of 24 cells", float, 0.00005),
        ("standard error of a difference", standard_error_of_difference, 0.00005),
        ("seed floor", seed_floor, _HALF_STEP),
    )
    return [
        _row(
            quantity,
            metric,
            paper,
            step(pooled),
            step(pooled) - step(lowest) + rounding,
            step(highest) - step(pooled) + rounding,
        )
        for (quantity, step, rounding), paper in zip(steps, printed, strict=True)
    ]


def _row(quantity: str, metric: str, paper: float, computed: float, below: float, above: float) -> Row:
    return {
        "quantity": quantity,
        "metric": metric,
        "paper": paper,
        "computed": computed,
        "lowest": computed - below,
        "highest": computed + above,
    }


def _all_deviations(metric: str) -> list[float]:
    return [value for values in _DEVIATIONS[metric].values() for value in values]


def _bounds(deviations: Sequence[float]) -> tuple[float, float]:
    """The pooled deviation if every cell had been rounded up, or down, by as much as it can be."""
    low = pooled_deviation([max(0.0, value - _HALF_STEP) for value in deviations])
    return low, pooled_deviation([value + _HALF_STEP for value in deviations])


def _reach(metric: str) -> str:
    """Where rounding stops the reproduction."""
    deviations = _all_deviations(metric)
    lowest, highest = _bounds(deviations)
    pooled, printed = pooled_deviation(deviations), _FLOORS[metric][0]
    floor, printed_floor = seed_floor(pooled), _FLOORS[metric][2]
    agrees = "is" if f"{floor:.2f}" == f"{printed_floor:.2f}" else "is NOT"
    return (
        f"{metric}: {len(deviations)} cells at two digits pool to {pooled:.4f} where the paper's unrounded ones gave"
        f" {printed}; two digits fix it only between {lowest:.4f} and {highest:.4f}. The floor {agrees} the"
        f" {printed_floor} printed"
    )


def _separation(metric: str) -> str:
    worst = min(_RUNS_AT_40[metric]["Top-hat + gate"][0])
    best = max(_RUNS_AT_40[metric]["Top-hat"][0])
    verb = "do not overlap" if worst > best else "overlap"
    return f"{metric} at 40%: gated and ungated runs {verb}, worst gated {worst} against best ungated {best}"


def _plot(figure: "Figure") -> None:
    panels: Any = figure.subplots(1, len(_FLOORS), sharey=True)
    for axes, (metric, printed) in zip(panels, _FLOORS.items(), strict=True):
        for position, (name, values) in enumerate(_DEVIATIONS[metric].items()):
            colour = PALETTE[position]
            axes.scatter(values, [position] * len(values), color=colour, s=18, label=name)
        axes.axvline(printed[0], color="0.25", linestyle="--", linewidth=1)
        axes.set(xlabel=f"deviation of {metric} over three seeds", xlim=(0, 0.3))
        axes.set_yticks(range(len(_DEVIATIONS[metric])), list(_DEVIATIONS[metric]))
        axes.set_title(f"pooled, paper: {printed[0]}", fontsize=9)
    panels[0].invert_yaxis()


STUDY = Study("seeds", "Table A10: seed replicates and the seed floor", run, takes=())
