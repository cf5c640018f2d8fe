"""Table A9: how AP depends on the gate's rank at three matched budgets."""

from typing import TYPE_CHECKING, Any

from vgtok.study.accuracy import Measured, open_trial, verdict
from vgtok.study.cells import Reader
from vgtok.study.paper_accuracy import GATED
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.tokenizer import SHIPPED_RANK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKS = (0.0, 0.05, 0.10, 0.20, 0.30, 0.40)
BUDGETS = (0.70, 0.40, 0.20)

_PAPER: dict[float, tuple[float | None, float, float]] = {
    0.0: (47.58, 39.45, 20.22),
    0.05: (47.72, 40.06, 20.81),
    0.10: (47.74, 40.40, 21.14),
    0.20: (47.76, 40.44, 21.18),
    0.30: (47.71, 40.14, 20.96),
    0.40: (None, 40.05, 20.80),
}
"""Table A9 and its caption, rank 0 from Table A3: AP on VisDrone at each budget."""


def run(inputs: Inputs) -> Result:
    """Measure every rank at every budget; each row is set beside the shipped rank."""
    trial = open_trial(inputs)
    small = trial.small
    readers: dict[tuple[float, float], Reader] = {
        (rank, budget): trial.tokenizer(GATED, budget, rank=rank) for budget in BUDGETS for rank in RANKS
    }
    cells = trial.measure(readers, "gate rank")
    rows: list[Row] = []
    for (rank, budget), cell in cells.items():
        printed = None if trial.dataset.name == "aitodv2" else _PAPER[rank][BUDGETS.index(budget)]
        rows.append(
            {
                "budget": budget,
                "rank": rank,
                "retained": cell.retained,
                "paper_AP": printed,
                "AP": cell["AP"],
                "AP50": cell["AP50"],
                small: cell[small],
                **cell.versus(f"rank {SHIPPED_RANK:g}", cells[SHIPPED_RANK, budget]),
            }
        )
    notes = [
        *trial.notes(),
        *(_best(cells, budget) for budget in BUDGETS),
        "rank 0 is no gate; where a rank caps retention below the budget (0.40 at 70% in the paper) the exact mode "
        "stops only as many nodes as the budget leaves over",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), also=trial.also(), read=trial.read)


def _best(cells: dict[tuple[float, float], Measured], budget: float) -> str:
    best = max(RANKS, key=lambda rank: cells[rank, budget]["AP"] or 0.0)
    gate = cells[SHIPPED_RANK, budget].minus(cells[0.0, budget], "AP")
    return f"{budget:.0%}: the best rank is {best:g}, in the paper 0.2; rank 0.2 over no gate: AP {verdict(*gate)}"


def _plot(figure: "Figure", rows: list[Row]) -> None:
    panels: Any = figure.subplots(1, len(BUDGETS))
    for axes, colour, budget in zip(panels, PALETTE, BUDGETS, strict=False):
        own = [row for row in rows if row["budget"] == budget]
        ranks, differences = [row["rank"] for row in own], [row["difference"] for row in own]
        spread = [[d - row["low"], row["high"] - d] for d, row in zip(differences, own, strict=True)]
        # An interval from few images need not hold the point itself.
        errors = [[max(side, 0.0) for side in sides] for sides in zip(*spread, strict=True)]
        axes.errorbar(ranks, differences, errors, fmt="o-", color=colour, capsize=3, label="measured")
        shipped = _PAPER[SHIPPED_RANK][BUDGETS.index(budget)]
        printed = [(row["rank"], row["paper_AP"] - shipped) for row in own if row["paper_AP"] is not None]
        if printed:
            axes.plot(*zip(*printed, strict=True), "x--", color="0.4", label="paper")
        axes.axhline(0, color="0.4", linewidth=1)
        axes.set(xlabel="gate rank", title=f"{budget:.0%} of tokens")
    panels[0].set_ylabel("AP against rank 0.2")
    panels[0].legend(fontsize=8)


STUDY = Study("rank", "Table A9: gate rank at three matched budgets", run, takes=DETECTS)
