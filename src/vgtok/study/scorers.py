"""Choices within the tokenizer: Table A2, eight pixel scores, and Table A9, the rank of the gate.

Both run one checkpoint at matched budgets and compare each choice with the shipped one.
"""

from typing import Any

from vgtok.study.accuracy import Measured, Trial, open_trial, verdict
from vgtok.study.cells import Reader
from vgtok.study.paper import GATED, TOP_HAT
from vgtok.study.result import DETECTS, Bars, Inputs, Line, Panel, Result, Row, Study, bar_plot, line_plot
from vgtok.tokenize.tokenizer import SHIPPED_RANK

_PERCENTILE = 40.0
_PAPER_SETTING = "Single-pass, 70%"
_TIGHT = (0.40, 0.20)
_SHIPPED = "tophat"

_SCORERS: dict[str, tuple[float | None, float, float, float]] = {
    "lambda_min": (47.65, 73.67, 50.91, 38.97),
    "tophat": (47.58, 73.50, 50.69, 38.85),
    "max_deviation_lab": (None, 73.57, 50.55, 38.84),
    "max_deviation": (None, 73.03, 50.12, 38.43),
    "upsample_mse": (None, 72.84, 49.87, 38.09),
    "gradient_energy": (None, 72.66, 49.92, 38.01),
    "laplacian": (None, 72.30, 49.16, 37.37),
    "entropy": (45.74, 71.57, 48.59, 36.86),
}
"""AP, AP50, AP75 and APS in the paper's order of AP.

AP is printed for the top-hat only (Section C); lambda_min and entropy follow from the +0.07 and -1.84 of Section 4.5.
"""

_SPREAD = (1.91, 2.10, 2.32, 2.11)


def scorers(inputs: Inputs) -> Result:
    """Measure the eight scores where Single-pass keeps 70%, as in the paper, and under the quadtree at 40 and 20%."""
    trial = open_trial(inputs)
    readers: dict[tuple[str, str], Reader] = {
        (_PAPER_SETTING, name): trial.single_pass(_PERCENTILE, scorer=name) for name in _SCORERS
    }
    readers |= {
        (f"quadtree, {budget:.0%}", name): trial.tokenizer(TOP_HAT, budget, scorer=name)
        for budget in _TIGHT
        for name in _SCORERS
        # Its finest grid is zero, so no quadtree can hold it to a budget.
        if name != "upsample_mse"
    }
    measured = trial.measure(readers, "scorers")
    metrics = ("AP", "AP50", "AP75", trial.small)
    cells = {name: cell for (setting, name), cell in measured.items() if setting == _PAPER_SETTING}
    rows: list[dict[str, Any]] = []
    tight: list[dict[str, Any]] = []
    for (setting, name), cell in measured.items():
        at_paper = setting == _PAPER_SETTING
        printed = _beside(trial, metrics, _SCORERS[name] if at_paper else (None,) * len(metrics))
        row = cell.row({"setting": setting, "scorer": name}, ("retained", *metrics), printed)
        (rows if at_paper else tight).append(row | cell.versus(_SHIPPED, measured[setting, _SHIPPED]))
    spread = {metric: _range([row[metric] for row in rows]) for metric in metrics}
    printed = {f"paper_{metric}": value for metric, value in _beside(trial, metrics, _SPREAD).items()}
    notes = [
        *(_ordering(rows, metric) for metric in metrics),
        "the paper's AP of lambda_min and entropy is derived: +0.07 and -1.84 to the top-hat's 47.58",
    ]
    panels = [_relative(rows, metric) for metric in ("AP50", trial.small)]
    table = [*rows, dict.fromkeys(rows[0]) | {"setting": _PAPER_SETTING, "scorer": "spread"} | spread | printed, *tight]
    return trial.result(table, notes, bar_plot(list(cells), *panels))


def _beside(trial: Trial, metrics: tuple[str, ...], values: tuple[float | None, ...]) -> dict[str, float | None]:
    """Return the paper's values by metric, None on AI-TOD-v2, for which it prints none."""
    return {m: None if trial.dataset.name == "aitodv2" else value for m, value in zip(metrics, values, strict=True)}


def _range(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return max(known) - min(known) if known else 0.0


def _ordering(rows: list[dict[str, Any]], metric: str) -> str:
    ranked = sorted(rows, key=lambda row: -(row[metric] or 0.0))
    return f"by {metric}: " + " > ".join(f"{row['scorer']} {row[metric] or 0.0:.2f}" for row in ranked)


def _relative(rows: list[dict[str, Any]], metric: str) -> Bars:
    """Return bars of a metric against the shipped score, measured and printed."""
    shipped = [row["scorer"] for row in rows].index(_SHIPPED)
    series = {}
    for label, column in (("measured", metric), ("paper", f"paper_{metric}")):
        values = [row[column] for row in rows]
        if None not in values:
            series[label] = [value - values[shipped] for value in values]
    return Bars(series, {"xlabel": f"{metric} against the top-hat"}, levels={"": 0.0})


_RANKS = (0.0, 0.05, 0.10, 0.20, 0.30, 0.40)
_BUDGETS = (0.70, 0.40, 0.20)

_RANKED: dict[float, tuple[float | None, float, float]] = {
    0.0: (47.58, 39.45, 20.22),
    0.05: (47.72, 40.06, 20.81),
    0.10: (47.74, 40.40, 21.14),
    0.20: (47.76, 40.44, 21.18),
    0.30: (47.71, 40.14, 20.96),
    0.40: (None, 40.05, 20.80),
}
"""Table A9 and its caption, rank 0 from Table A3: AP on VisDrone at each budget."""


def rank(inputs: Inputs) -> Result:
    """Measure every rank at every budget and compare each with the shipped rank."""
    trial = open_trial(inputs)
    readers: dict[tuple[float, float], Reader] = {
        (at, budget): trial.tokenizer(GATED, budget, rank=at) for budget in _BUDGETS for at in _RANKS
    }
    cells = trial.measure(readers, "gate rank")
    rows: list[Row] = []
    for (at, budget), cell in cells.items():
        printed = None if trial.dataset.name == "aitodv2" else _RANKED[at][_BUDGETS.index(budget)]
        metrics = ("retained", "AP", "AP50", trial.small)
        row = cell.row({"budget": budget, "rank": at}, metrics, {"AP": printed})
        rows.append(row | cell.versus(f"rank {SHIPPED_RANK:g}", cells[SHIPPED_RANK, budget]))
    notes = [
        *(_best(cells, budget) for budget in _BUDGETS),
        "rank 0 is no gate; where a rank caps retention below the budget (0.40 at 70% in the paper) the exact mode "
        "stops only as many nodes as the budget leaves over",
    ]
    return trial.result(rows, notes, line_plot(*(_rank_panel(rows, budget) for budget in _BUDGETS)))


def _best(cells: dict[tuple[float, float], Measured], budget: float) -> str:
    best = max(_RANKS, key=lambda at: cells[at, budget]["AP"] or 0.0)
    gate = cells[SHIPPED_RANK, budget].minus(cells[0.0, budget], "AP")
    return f"{budget:.0%}: the best rank is {best:g}, in the paper 0.2; rank 0.2 over no gate: AP {verdict(*gate)}"


def _rank_panel(rows: list[Row], budget: float) -> Panel:
    """Return the differences to the shipped rank at one budget with their intervals, and the paper's."""
    own = [row for row in rows if row["budget"] == budget]
    ranks, differences = [row["rank"] for row in own], [row["difference"] for row in own]
    # An interval from few images need not contain the point itself.
    below = [max(row["difference"] - row["low"], 0.0) for row in own]
    above = [max(row["high"] - row["difference"], 0.0) for row in own]
    shipped = _RANKED[SHIPPED_RANK][_BUDGETS.index(budget)] or 0.0
    printed = [row for row in own if row["paper_AP"] is not None]
    lines = [Line(ranks, differences, "measured", _BUDGETS.index(budget), errors=[below, above])]
    if printed:
        values = [row["paper_AP"] - shipped for row in printed]
        lines.append(Line([row["rank"] for row in printed], values, "paper", "0.4", "x--"))
    axes = {"xlabel": "gate rank", "ylabel": "AP against rank 0.2", "title": f"{budget:.0%} of tokens"}
    return Panel(lines, axes, {"": 0.0})


STUDIES = (
    Study("scorers", "Table A2: eight pixel scores at matched budgets", scorers, takes=DETECTS, frames=200),
    Study("rank", "Table A9: gate rank at three matched budgets", rank, takes=DETECTS, frames=200),
)
