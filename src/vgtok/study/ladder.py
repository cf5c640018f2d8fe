"""Table A3 and Section C: one checkpoint under every tokenizer from 100% of the tokens to 20%, and a random floor."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vgtok.study.accuracy import RANDOM, Measured, Trial, open_trial, share_of, signed, verdict
from vgtok.study.affine import RUNGS
from vgtok.study.cells import Reader
from vgtok.study.paper import BUDGETS
from vgtok.study.paper_accuracy import (
    DENSE,
    FUSED,
    FUSED_GATED,
    GATED,
    QUADTREES,
    SINGLE_PASS,
    SINGLE_PASS_RUNGS,
    TOP_HAT,
    ZERO_SHOT_EFFECT,
    Printed,
    zero_shot,
)
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[str, float]
"""A tokenizer and its share of the tokens; of Single-pass its threshold."""

DENSE_POINT: Point = (DENSE, 1.0)
_CONTROL = {GATED: TOP_HAT, FUSED: TOP_HAT, FUSED_GATED: FUSED, RANDOM: GATED}
"""What a tokenizer is compared with at its own budget; Top-hat with Single-pass where both have one."""

_SHARED = {0.70: 40, 0.40: 80}
"""Budgets Single-pass reaches at one of the twelve thresholds."""


def ladder(trial: Trial) -> dict[Point, Reader]:
    """Every point of the ladder."""
    readers: dict[Point, Reader] = {DENSE_POINT: trial.tokenizer(DENSE)}
    readers |= {(SINGLE_PASS, float(rung)): trial.single_pass(rung) for rung in RUNGS}
    for name in (*QUADTREES, RANDOM):
        readers |= {(name, budget): trial.tokenizer(name, budget) for budget in BUDGETS}
    return readers


def run(inputs: Inputs) -> Result:
    """Measure every point and set each beside its control at the same budget."""
    trial = open_trial(inputs)
    cells = trial.measure(ladder(trial), "ladder")
    rows = [_row(trial, point, cells) for point in cells]
    notes = [*trial.notes(), *_orderings(trial, cells)]
    small = {
        "small_band": [
            {
                "tokenizer": point[0],
                "at": point[1],
                **cell.versus(_control(point)[0], cells[_control(point)], trial.small),
            }
            for point, cell in cells.items()
        ]
    }
    return Result(
        rows, notes, plot=lambda figure: _plot(figure, rows, trial.small), also=trial.also() | small, read=trial.read
    )


def _row(trial: Trial, point: Point, cells: dict[Point, Measured]) -> Row:
    name, at = point
    cell, small = cells[point], trial.small
    printed = paper(trial.dataset.name, point)
    control = _control(point)
    return {
        "tokenizer": name,
        "setting": f"p {at:g}" if name == SINGLE_PASS else f"{at:.0%}",
        "paper_retained": printed.get("retained"),
        "retained": cell.retained,
        "paper_AP": printed.get("AP"),
        "AP": cell["AP"],
        "paper_AP50": printed.get("AP50"),
        "AP50": cell["AP50"],
        f"paper_{small}": printed.get(small),
        small: cell[small],
        **cell.versus(control[0], cells[control]),
    }


def paper(data: str, point: Point) -> Printed:
    """What the paper prints of a point of the ladder."""
    name, at = point
    if name == SINGLE_PASS:
        return {} if data == "aitodv2" else SINGLE_PASS_RUNGS.get(at, {})
    return zero_shot(data, name, at)


def _control(point: Point) -> Point:
    name, at = point
    if name in _CONTROL:
        return _CONTROL[name], at
    return (SINGLE_PASS, float(_SHARED[at])) if name == TOP_HAT and at in _SHARED else DENSE_POINT


def _orderings(trial: Trial, cells: dict[Point, Measured]) -> Iterator[str]:
    """What the paper claims of the ladder, as measured."""
    dense, small = cells[DENSE_POINT], trial.small
    for budget, rung in _SHARED.items():
        one, other = cells[TOP_HAT, budget], cells[SINGLE_PASS, float(rung)]
        claim = ", +7.90 in the paper" if budget == 0.40 else ""
        of_all, of_small = (verdict(*one.minus(other, metric)) for metric in ("AP", small))
        yield f"Top-hat over Single-pass at {budget:.0%}{claim}: AP {of_all}; {small} {of_small}"
    gain = cells[GATED, 0.40].minus(cells[TOP_HAT, 0.40], small)
    yield f"gate effect at 40% on {small}, +1.15 APS in the paper: {verdict(*gain)}"
    effects = [cells[GATED, budget].minus(cells[TOP_HAT, budget], "AP") for budget in BUDGETS]
    printed = ", ".join(signed(ZERO_SHOT_EFFECT[budget]["AP"]) for budget in BUDGETS)
    measured = ", ".join(signed(effect[0]) for effect in effects)
    values = [effect[0] or 0.0 for effect in effects]
    grows = all(after >= before for before, after in pairwise(values[:-1]))
    yield (
        f"gate effect on AP at 80, 70, 60, 40, 20%: {measured}; paper {printed}; from 80 to 40% it "
        f"{'grows' if grows else 'does not grow steadily'} here; at 40% {verdict(*effects[3])}; at 20% "
        f"{verdict(*effects[4])}"
    )
    for budget in (0.40, 0.20):
        over = cells[GATED, budget].minus(cells[RANDOM, budget], "AP")
        yield f"Top-hat + gate over a random partition of the same count at {budget:.0%}: AP {verdict(*over)}"
    yield f"dense AP {_points(dense['AP'])}, {small} {_points(dense[small])}; at 40% Top-hat + gate keeps " + share_of(
        cells[GATED, 0.40], dense
    )
    at_40 = [(name, at) for name, at in cells if at == (_SHARED[0.40] if name == SINGLE_PASS else 0.40)]
    ranked = sorted((cells[point]["AP"] or 0.0, point[0]) for point in at_40)
    yield "AP at 40%: " + " < ".join(f"{name} {value:.2f}" for value, name in ranked)


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _plot(figure: "Figure", rows: list[Row], small: str) -> None:
    """AP and the small band against the share of tokens, a line per tokenizer from the dense point down."""
    panels: Any = figure.subplots(1, 2)
    dense = rows[0]
    for axes, metric in zip(panels, ("AP", small), strict=True):
        for colour, name in zip(PALETTE, (SINGLE_PASS, *QUADTREES, RANDOM), strict=False):
            own = [dense, *(row for row in rows if row["tokenizer"] == name)]
            style = "o--" if name == RANDOM else "o-"
            values = [row[metric] for row in own]
            axes.plot([row["retained"] for row in own], values, style, color=colour, markersize=3.5, label=name)
        axes.set(xlabel="share of the dense grid", ylabel=metric, ylim=(0, None))
    panels[0].legend(fontsize=7)


STUDY = Study("ladder", "Table A3 and Sec. C: budget ladders of one checkpoint", run, takes=DETECTS)
