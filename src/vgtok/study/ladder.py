"""Budget ladders of one checkpoint: Table A3 and Section C, and Fig. 3, accuracy against the share of tokens.

Every tokenizer is measured from 100% of the tokens to 20%, with a random partition as the baseline; each point is
compared with its control at the same budget and with what the paper prints of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vgtok.data.subset import evenly_spaced
from vgtok.errors import InputError
from vgtok.study.accuracy import Measured, Trial, open_trial, open_trials, share_of, signed, verdict
from vgtok.study.budgets import PERCENTILES
from vgtok.study.cells import Reader
from vgtok.study.paper import (
    BUDGETS,
    COMPACT,
    DENSE,
    FUSED,
    FUSED_GATED,
    GATED,
    GATED_33,
    QUADTREES,
    RANDOM,
    RANDOM_GATE,
    SCORE_GATE,
    SINGLE_PASS,
    SINGLE_PASS_RUNGS,
    TOP_HAT,
    TRAINED,
    ZERO_SHOT_EFFECT,
    Printed,
    zero_shot,
)
from vgtok.study.result import DETECTS, Inputs, Line, Panel, Result, Row, Study, draw_line, line_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[str, float]
"""A tokenizer and its budget; of Single-pass its percentile."""

_DENSE_POINT: Point = (DENSE, 1.0)
_CONTROL = {
    GATED: TOP_HAT,
    GATED_33: TOP_HAT,
    SCORE_GATE: TOP_HAT,
    RANDOM_GATE: TOP_HAT,
    FUSED: TOP_HAT,
    COMPACT: GATED,
    FUSED_GATED: FUSED,
    RANDOM: GATED,
}
"""The control of a tokenizer at its own budget; of Top-hat it is Single-pass where both have the budget."""

_SHARED = {0.70: 40, 0.40: 80}
"""Budgets that Single-pass reaches at one of its percentiles."""

_DECISIVE = (0.40, 0.20)
"""Budgets measured on all images; the others, where tokenizers hardly differ, on a part of them."""

_PART = 200
_LADDER = (*QUADTREES, COMPACT, RANDOM)
_GATES = (GATED_33, SCORE_GATE, RANDOM_GATE)
"""Other gates, measured at the decisive budgets."""

Group = tuple[Trial, dict[Point, Measured]]
"""Points measured on the same images."""


def ladder(inputs: Inputs) -> Result:
    """Measure every point, by each head asked for, and compare it with its control at the same budget."""
    trials = open_trials(inputs)
    measured = [(trial, _measured(trial, _LADDER, _GATES, f"ladder, {trial.head} head")) for trial in trials]
    own, small = trials[0], trials[0].small
    rows = [_row(part, point, cells) for _, groups in measured for part, cells in groups for point in cells]
    drawn = [row for row in rows if row["head"] == own.head]
    panels = []
    for metric in ("AP", small):
        lines = []
        for number, name in enumerate((SINGLE_PASS, *_LADDER)):
            line = [drawn[0], *(row for row in drawn if row["tokenizer"] == name)]
            line.sort(key=lambda row: -float(row["retained"]))
            style = "o--" if name == RANDOM else "o-"
            shares, values = [row["retained"] for row in line], [row[metric] for row in line]
            lines.append(Line(shares, values, name, number, style, looks={"markersize": 3.5}))
        panels.append(Panel(lines, {"xlabel": "share of the dense grid", "ylabel": metric, "ylim": (0, None)}))
    differences = [
        row
        for _, groups in measured
        for part, cells in groups
        for point in cells
        for row in _differences(part, point, cells)
    ]
    notes = [
        note if trial is own else f"{trial.head} head: {note}"
        for trial, groups in measured
        for note in _orderings(trial, _merged(groups))
    ]
    notes += _part_note(measured[0][1])
    return own.result(rows, notes, line_plot(*panels), also={"differences": differences})


def _measured(trial: Trial, names: tuple[str, ...], decisive: tuple[str, ...], label: str) -> list[Group]:
    """Measure the dense point and the decisive budgets on all images, the other budgets and rungs on a part of them."""
    dense: dict[Point, Reader] = {_DENSE_POINT: trial.tokenizer(DENSE)}
    rung = float(_SHARED[0.40])
    first: dict[Point, Reader] = {(SINGLE_PASS, rung): trial.single_pass(rung)}
    first |= {(name, budget): trial.tokenizer(name, budget) for name in (*names, *decisive) for budget in _DECISIVE}
    rest: dict[Point, Reader] = {(SINGLE_PASS, float(p)): trial.single_pass(p) for p in PERCENTILES if p != rung}
    rest |= {(name, at): trial.tokenizer(name, at) for name in names for at in BUDGETS if at not in _DECISIVE}
    if len(trial.dataset.images) <= _PART:
        return [(trial, trial.measure({**dense, **first, **rest}, label))]
    part = replace(trial, dataset=evenly_spaced(trial.dataset, _PART))
    return [(trial, trial.measure({**dense, **first}, label)), (part, part.measure({**dense, **rest}, label))]


def _merged(groups: list[Group]) -> dict[Point, Measured]:
    """Return all points; of the dense one, which every group has, that on all images."""
    return {point: cell for _, cells in reversed(groups) for point, cell in cells.items()}


def _part_note(groups: list[Group]) -> list[str]:
    if len(groups) == 1:
        return []
    part = len(groups[1][0].dataset.images)
    return [f"budgets other than 40 and 20% on {part} images, evenly spread; their differences to dense on the same"]


def _row(trial: Trial, point: Point, cells: dict[Point, Measured]) -> Row:
    name, at = point
    about = {"head": trial.head, "tokenizer": name, "setting": f"p {at:g}" if name == SINGLE_PASS else f"{at:.0%}"}
    metrics = ("retained", "AP", "AP50", trial.small)
    printed = _paper(trial.dataset.name, point)
    control = _control(point)
    row = cells[point].row(about, metrics, {metric: printed.get(metric) for metric in metrics})
    return {**row, "images": len(trial.dataset.images), **cells[point].versus(control[0], cells[control])}


def _differences(trial: Trial, point: Point, cells: dict[Point, Measured]) -> Iterator[Row]:
    """Yield the differences of a point to random, to Top-hat and to dense, with their paired intervals."""
    name, at = point
    budget = next((b for b, rung in _SHARED.items() if rung == at), None) if name == SINGLE_PASS else at
    others: list[tuple[str, float | None]] = [(RANDOM, budget), (TOP_HAT, budget), _DENSE_POINT]
    for other in others:
        if other == point or other not in cells:
            continue
        for metric in ("AP", trial.small):
            row = cells[point].versus(other[0], cells[other], metric)
            significant = row["low"] is not None and (row["low"] > 0 or row["high"] < 0)
            yield {"head": trial.head, "tokenizer": name, "at": at, "metric": metric, **row, "significant": significant}


def _paper(data: str, point: Point) -> Printed:
    """Return what the paper prints of a point."""
    name, at = point
    if name == SINGLE_PASS:
        return {} if data == "aitodv2" else SINGLE_PASS_RUNGS.get(at, {})
    return zero_shot(data, name, at)


def _control(point: Point) -> Point:
    name, at = point
    if name in _CONTROL:
        return _CONTROL[name], at
    return (SINGLE_PASS, float(_SHARED[at])) if name == TOP_HAT and at in _SHARED else _DENSE_POINT


def _orderings(trial: Trial, cells: dict[Point, Measured]) -> Iterator[str]:
    """Yield what the paper claims of the ladder, as measured."""
    dense, small = cells[_DENSE_POINT], trial.small
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
    for budget in _DECISIVE:
        for name, control in ((GATED, GATED_33), (GATED, SCORE_GATE), (GATED, RANDOM_GATE), (COMPACT, GATED)):
            gains = (cells[name, budget].minus(cells[control, budget], metric) for metric in ("AP", small))
            of_all, of_small = (verdict(*gain) for gain in gains)
            yield f"{name} over {control} at {budget:.0%}: AP {of_all}; {small} {of_small}"
    at_40 = [(name, at) for name, at in cells if at == (_SHARED[0.40] if name == SINGLE_PASS else 0.40)]
    ranked = sorted((cells[point]["AP"] or 0.0, point[0]) for point in at_40)
    yield "AP at 40%: " + " < ".join(f"{name} {value:.2f}" for value, name in ranked)


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


_DRAWN = (GATED, TOP_HAT, SINGLE_PASS)
_PUBLISHED = {"EVORL": {"AP": 42.2}, "Dome-DETR-L": {"AP": 40.5}, "YOLC + MS": {"APS": 32.9}}
"""The dotted bars of the figure."""

_OWN = ("measured", "measured zero-shot")
"""Kinds of points measured here: of the model, and of a second one that never saw a coarse token."""

_TRAINED_DENSE = {"AP": 48.14, "APS": 39.53}
"""The dense model finetuned with the recipe of the trained cells (Section 4.2)."""


def pareto(inputs: Inputs) -> Result:
    """Measure the three tokenizers of the figure along their budgets, beside the trained, zero-shot and published.

    A second model, one that never saw a coarse token, is the zero-shot curve of the first.
    """
    names = inputs.models or (inputs.model,)
    if len(names) > 2:
        raise InputError(f"--model: the trained model and one trained on all tokens, not {len(names)}")
    trial = open_trial(inputs, names[0])
    rows, notes = _paper_rows(), []
    for kind, name in zip(_OWN, names, strict=False):
        own = open_trial(inputs, name)
        cells = _merged(_measured(own, (TOP_HAT, GATED), (), f"pareto, {own.title}"))
        rows += [
            _point(kind, tokenizer, cell.retained, cell["AP"], cell.evaluation.metrics.get("APS"))
            for (tokenizer, _), cell in cells.items()
        ]
        gain = cells[TOP_HAT, 0.40].minus(cells[SINGLE_PASS, float(_SHARED[0.40])], "AP")
        notes.append(
            f"{kind}, {own.title}: at 40% Top-hat + gate keeps {share_of(cells[GATED, 0.40], cells[_DENSE_POINT])}; "
            f"Top-hat over Single-pass at 40%: AP {verdict(*gain)}"
        )
    notes += [
        *_crossings(trial, rows),
        "trained: finetuned at each budget, means of three seeds; zero-shot: the paper's dense checkpoint; measured: "
        "one checkpoint at every budget; measured zero-shot: one that never saw a coarse token",
    ]
    return trial.result(rows, notes, lambda figure: _plot(figure, rows))


def _point(kind: str, name: str, retained: float | None, ap: float | None, aps: float | None) -> Row:
    return {"kind": kind, "name": name, "retained": retained, "AP": ap, "APS": aps}


def _paper_rows() -> list[Row]:
    rows = [_point("published", name, None, bar.get("AP"), bar.get("APS")) for name, bar in _PUBLISHED.items()]
    rows.append(_point("trained", DENSE, 1.0, _TRAINED_DENSE["AP"], _TRAINED_DENSE["APS"]))
    for name in _DRAWN:
        rows += [_point("trained", name, budget, cell["AP"], cell["APS"]) for budget, cell in TRAINED[name].items()]
    points: list[Point] = [_DENSE_POINT, *((name, budget) for name in (GATED, TOP_HAT) for budget in BUDGETS)]
    points += [(SINGLE_PASS, float(p)) for p in PERCENTILES]
    for name, at in points:
        printed = _paper("visdrone", (name, at))
        if "AP" in printed:
            rows.append(_point("zero-shot", name, printed.get("retained", at), printed["AP"], printed.get("APS")))
    return rows


def _crossings(trial: Trial, rows: list[Row]) -> list[str]:
    """Return the lowest share of tokens at which the measured model passes each published bar."""
    notes = []
    for name, bar in _PUBLISHED.items():
        for metric, value in bar.items():
            own = [row for row in rows if row["kind"] == "measured" and row["name"] in (GATED, DENSE)]
            above = [row["retained"] for row in own if (row[metric] or 0.0) >= value]
            reach = f"passed from {min(above):.0%} of tokens" if above else "not reached"
            notes.append(f"{trial.title} and {name}'s {value} {metric}: {reach}; the paper's model passes it from 40%")
    return notes


def _plot(figure: "Figure", rows: list[Row]) -> None:
    """Draw AP and APS above, and their share of the own dense model below."""
    figure.set_size_inches(7.6, 6.4)
    panels: Any = figure.subplots(2, 2, sharex=True)
    styles = {"trained": "o-", "zero-shot": "o--", **dict(zip(_OWN, ("s-", "s--"), strict=True))}
    styles = {kind: style for kind, style in styles.items() if any(row["kind"] == kind for row in rows)}
    for column, metric in enumerate(("AP", "APS")):
        for kind, style in styles.items():
            dense = next(row for row in rows if row["kind"] == kind and row["name"] == DENSE)
            for number, name in enumerate(_DRAWN):
                own = [row for row in rows if row["kind"] == kind and row["name"] == name and row[metric] is not None]
                line = sorted([dense, *own], key=lambda row: float(row["retained"]))
                along, values = [row["retained"] for row in line], [row[metric] for row in line]
                looks = {"markersize": 3.5, "linewidth": 1.8 if kind in _OWN else 1.0}
                looks |= {"alpha": 1.0 if kind in _OWN else 0.55}
                draw_line(panels[0, column], Line(along, values, f"{name}, {kind}", number, style, looks=looks))
                if dense[metric]:
                    shares = [value / dense[metric] for value in values]
                    draw_line(panels[1, column], Line(along, shares, None, number, style, looks=looks))
        bars = [row for row in rows if row["kind"] == "published" and row[metric] is not None]
        for row, side in zip(bars, ("bottom", "top"), strict=False):
            panels[0, column].axhline(row[metric], color="0.35", linestyle=":", linewidth=1)
            panels[0, column].annotate(row["name"], (0.2, row[metric]), fontsize=6, va=side)
        panels[0, column].set(ylabel=metric, ylim=(0, None))
        panels[1, column].set(xlabel="share of the dense grid", ylabel=f"share of own dense {metric}", ylim=(0, 1.05))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=6.5, ncols=3, loc="outside upper center")


STUDIES = (
    Study("ladder", "Table A3 and Sec. C: budget ladders of one checkpoint", ladder, takes=DETECTS, both_heads=True),
    Study("pareto", "Fig. 3: operating range, trained, zero-shot and published", pareto, takes=DETECTS),
)
