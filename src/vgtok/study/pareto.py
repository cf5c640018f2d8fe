"""Fig. 3: AP against the share of tokens; the paper's trained, zero-shot and published points, and ours measured."""

from typing import TYPE_CHECKING, Any

from vgtok.study.accuracy import Trial, open_trial
from vgtok.study.affine import RUNGS
from vgtok.study.cells import Reader
from vgtok.study.ladder import DENSE_POINT, Point, paper
from vgtok.study.paper import BUDGETS
from vgtok.study.paper_accuracy import DENSE, GATED, SINGLE_PASS, TOP_HAT, TRAINED
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = (GATED, TOP_HAT, SINGLE_PASS)
_PUBLISHED = {"EVORL": {"AP": 42.2}, "Dome-DETR-L": {"AP": 40.5}, "YOLC + MS": {"APS": 32.9}}
"""The dotted bars of the figure."""

_TRAINED_DENSE = {"AP": 48.14, "APS": 39.53}
"""The dense model finetuned by the recipe of the trained cells (Section 4.2)."""


def run(inputs: Inputs) -> Result:
    """Measure the three tokenizers of the figure along their budgets."""
    trial = open_trial(inputs)
    readers: dict[Point, Reader] = {DENSE_POINT: trial.tokenizer(DENSE)}
    readers |= {(SINGLE_PASS, float(rung)): trial.single_pass(rung) for rung in RUNGS}
    readers |= {(name, budget): trial.tokenizer(name, budget) for name in (TOP_HAT, GATED) for budget in BUDGETS}
    cells = trial.measure(readers, "pareto")
    rows = _paper_rows()
    rows += [
        _row("measured", name, cell.retained, cell["AP"], cell.evaluation.metrics.get("APS"))
        for (name, _), cell in cells.items()
    ]
    notes = [
        *trial.notes(),
        *_crossings(trial, rows),
        "trained: finetuned at each budget, means of three seeds; zero-shot: the paper's dense checkpoint; measured: "
        f"one checkpoint, {trial.title}, at every budget",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), also=trial.also(), read=trial.read)


def _row(kind: str, name: str, retained: float | None, ap: float | None, aps: float | None) -> Row:
    return {"kind": kind, "name": name, "retained": retained, "AP": ap, "APS": aps}


def _paper_rows() -> list[Row]:
    rows = [_row("published", name, None, bar.get("AP"), bar.get("APS")) for name, bar in _PUBLISHED.items()]
    rows.append(_row("trained", DENSE, 1.0, _TRAINED_DENSE["AP"], _TRAINED_DENSE["APS"]))
    for name in _NAMES:
        rows += [_row("trained", name, budget, cell["AP"], cell["APS"]) for budget, cell in TRAINED[name].items()]
    points: list[Point] = [DENSE_POINT, *((name, budget) for name in (GATED, TOP_HAT) for budget in BUDGETS)]
    points += [(SINGLE_PASS, float(rung)) for rung in RUNGS]
    for name, at in points:
        printed = paper("visdrone", (name, at))
        if "AP" in printed:
            rows.append(_row("zero-shot", name, printed.get("retained", at), printed["AP"], printed.get("APS")))
    return rows


def _crossings(trial: Trial, rows: list[Row]) -> list[str]:
    """The lowest share of tokens at which the measured line still passes each published bar."""
    notes = []
    for name, bar in _PUBLISHED.items():
        for metric, value in bar.items():
            own = [row for row in rows if row["kind"] == "measured" and row["name"] in (GATED, DENSE)]
            above = [row["retained"] for row in own if (row[metric] or 0.0) >= value]
            reach = f"passed from {min(above):.0%} of tokens" if above else "not reached"
            notes.append(f"{trial.title} and {name}'s {value} {metric}: {reach}; the paper's model passes it from 40%")
    return notes


def _plot(figure: "Figure", rows: list[Row]) -> None:
    figure.set_size_inches(7.6, 6.4)
    panels: Any = figure.subplots(2, 2, sharex=True)
    styles = {"trained": "o-", "zero-shot": "o--", "measured": "s-"}
    for column, metric in enumerate(("AP", "APS")):
        for kind, style in styles.items():
            dense = next(row for row in rows if row["kind"] == kind and row["name"] == DENSE)
            for colour, name in zip(PALETTE, _NAMES, strict=False):
                own = [row for row in rows if row["kind"] == kind and row["name"] == name and row[metric] is not None]
                line = sorted([dense, *own], key=lambda row: float(row["retained"]))
                along, values = [row["retained"] for row in line], [row[metric] for row in line]
                looks = {"color": colour, "markersize": 3.5, "linewidth": 1.8 if kind == "measured" else 1.0}
                looks |= {"alpha": 1.0 if kind == "measured" else 0.55}
                panels[0, column].plot(along, values, style, label=f"{name}, {kind}", **looks)
                if dense[metric]:
                    panels[1, column].plot(along, [value / dense[metric] for value in values], style, **looks)
        bars = [row for row in rows if row["kind"] == "published" and row[metric] is not None]
        for row, side in zip(bars, ("bottom", "top"), strict=False):
            panels[0, column].axhline(row[metric], color="0.35", linestyle=":", linewidth=1)
            panels[0, column].annotate(row["name"], (0.2, row[metric]), fontsize=6, va=side)
        panels[0, column].set(ylabel=metric, ylim=(0, None))
        panels[1, column].set(xlabel="share of the dense grid", ylabel=f"share of own dense {metric}", ylim=(0, 1.05))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=6.5, ncols=3, loc="outside upper center")


STUDY = Study("pareto", "Fig. 3: operating range, trained, zero-shot and published", run, takes=DETECTS)
