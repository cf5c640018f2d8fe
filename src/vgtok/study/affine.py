"""Section 3.2: under Single-pass the share kept is 1 - 0.0075 p, at twelve thresholds from 5 to 80."""

from typing import TYPE_CHECKING, Any

from vgtok.study.counts import token_counts
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNGS = (5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80)
_PAPER_TOLERANCE, _PAPER_TIGHT = 0.29, 0.03


def run(inputs: Inputs) -> Result:
    """Count Single-pass tokens at twelve percentiles and compare the mean with the law."""
    tokenizers = {str(p): Tokenizer(percentile=p, splitter="single_pass", canvas=inputs.canvas) for p in RUNGS}
    counts, dense = token_counts(inputs, tokenizers, "affine law")
    rows: list[Row] = []
    for p in RUNGS:
        retained = float((counts[str(p)] / dense).mean())
        law = 1 - 0.0075 * p
        rows.append({"percentile": p, "paper_law": law, "retained": retained, "off_points": 100 * (retained - law)})
    worst = max(abs(row["off_points"]) for row in rows)
    tight = [row["percentile"] for row in rows if abs(row["off_points"]) <= _PAPER_TIGHT]
    notes = [
        f"worst rung off by {worst:.3f} points; the paper says within {_PAPER_TOLERANCE}",
        f"holds to {_PAPER_TIGHT} points at p = {', '.join(map(str, tight)) or 'none'}",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=inputs.read_all())


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    axes.axhline(0, color="0.4", linewidth=1)
    axes.axhspan(-_PAPER_TOLERANCE, _PAPER_TOLERANCE, color=PALETTE[2], alpha=0.12, label="paper's 0.29 points")
    axes.plot([r["percentile"] for r in rows], [r["off_points"] for r in rows], "o-", color=PALETTE[0])
    axes.set(xlabel="percentile p", ylabel="points off 1 - 0.0075 p")
    axes.legend()


STUDY = Study("affine", "Single-pass keeps 1 - 0.0075 p", run)
