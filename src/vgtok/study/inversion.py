"""Table A12: the percentile that delivers each budget at each gate rank, from a measured 32-rung sweep."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vgtok.errors import BudgetError
from vgtok.parallel import map_with_progress
from vgtok.study.paper import BUDGETS, INVERTED
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.calibrate import RUNGS, Sweep, SweepJob, sweep_image
from vgtok.tokenize.retention import RetentionCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class _Measured:
    """Per rank: the measured curve, and the share kept at each percentile the paper prints."""

    curves: dict[float, RetentionCurve]
    at_paper: dict[float, dict[float, float]]


def run(inputs: Inputs) -> Result:
    """Sweep every image once, then read the paper's percentiles and invert the sweep."""
    name = inputs.printed_for(INVERTED)
    measured = _measure(inputs)
    rows = [row for rank in INVERTED[name] for row in _rows(name, rank, measured)]
    cells = [row for row in rows if row["paper_percentile"] is not None]
    worst = max(abs(row["retained_at_paper_percentile"] - row["budget"]) for row in cells)
    agree = all(row["percentile"] is None for row in rows if row["paper_percentile"] is None)
    notes = [
        f"retained at the paper's percentile is off its budget by at most {100 * worst:.2f} points "
        f"in all {len(cells)} reachable cells",
        f"cells the paper calls unreachable: {'all unreachable here too' if agree else 'NOT all unreachable here'}",
        f"{len(inputs.data.images)} images at {'x'.join(map(str, inputs.canvas))}, {len(RUNGS)} rungs per rank",
    ]
    return Result(rows, notes, _paper_only(name), lambda figure: _plot(figure, rows, measured), read=inputs.read_all())


def _measure(inputs: Inputs) -> _Measured:
    printed = INVERTED[inputs.data.name]
    extra = sorted({value for values in printed.values() for value in values if value is not None})
    sweep = Sweep(ranks=tuple(printed), percentiles=(*RUNGS, *extra), canvas=inputs.canvas)
    jobs = [SweepJob(path, sweep) for path in inputs.data.images]
    entries = map_with_progress(sweep_image, jobs, workers=inputs.workers, label="inversion")
    # (images, ranks, percentiles) to (ranks, percentiles); one scorer only
    shares = np.mean([np.array(entry["tokens"][0]) / entry["dense"] for entry in entries], axis=0)
    curves = {
        rank: RetentionCurve("tophat", rank, RUNGS, tuple(shares[i, : len(RUNGS)].tolist()))
        for i, rank in enumerate(printed)
    }
    at_paper = {rank: dict(zip(extra, shares[i, len(RUNGS) :].tolist(), strict=True)) for i, rank in enumerate(printed)}
    return _Measured(curves, at_paper)


def _rows(name: str, rank: float, measured: _Measured) -> list[Row]:
    rows: list[Row] = []
    for budget, paper in zip(BUDGETS, INVERTED[name][rank], strict=True):
        try:
            percentile: float | None = round(measured.curves[rank].percentile_for(budget), 2)
        except BudgetError:
            percentile = None
        rows.append(
            {
                "rank": rank,
                "budget": budget,
                "paper_percentile": paper,
                "retained_at_paper_percentile": None if paper is None else measured.at_paper[rank][paper],
                "percentile": percentile,
                "reachable_up_to": round(measured.curves[rank].reachable[1], 4),
            }
        )
    return rows


def _paper_only(measured: str) -> list[Row]:
    return [
        {"rank": rank, "budget": budget, "paper_percentile": value, "status": f"needs {name}"}
        for name, ranks in INVERTED.items()
        if name != measured
        for rank, values in ranks.items()
        for budget, value in zip(BUDGETS, values, strict=True)
    ]


def _plot(figure: "Figure", rows: list[Row], measured: _Measured) -> None:
    axes: Any = figure.subplots()
    for colour, (rank, curve) in zip(PALETTE, measured.curves.items(), strict=False):
        axes.plot(curve.percentiles, curve.retained, color=colour, label=f"rank {rank:g}" if rank else "no gate")
        points = [(row["paper_percentile"], row["budget"]) for row in rows if row["rank"] == rank]
        for percentile, budget in points:
            if percentile is not None:
                axes.plot(percentile, budget, "x", color=colour)
    axes.set(xlabel="percentile", ylabel="share of the dense grid", title="measured curves, paper's cells as crosses")
    axes.legend()


STUDY = Study("inversion", "Table A12: percentile per budget and gate rank", run)
