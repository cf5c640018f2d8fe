"""Table A11: the four tokenizers of the 40% column, re-measured at the thresholds the paper deploys them at."""

from typing import TYPE_CHECKING, Any

from vgtok.study.counts import token_counts
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PRINTED = {
    "Top-hat": ("tophat", 0.0, 81.88, 3687.9),
    "Top-hat + gate": ("tophat", SHIPPED_RANK, 74.82, 3687.3),
    "Top-hat (+) lambda": ("fused", 0.0, 81.96, 3687.6),
    "Top-hat (+) lambda + gate": ("fused", SHIPPED_RANK, 74.70, 3688.1),
}
"""Scorer, rank, the paper's percentile and its mean token count."""

_PAPER_RETAINED = 0.4001


def run(inputs: Inputs) -> Result:
    """Count tokens at the printed thresholds over every image."""
    tokenizers = {
        name: Tokenizer(percentile=percentile, rank=rank, scorer=scorer, canvas=inputs.canvas)
        for name, (scorer, rank, percentile, _) in _PRINTED.items()
    }
    counts, dense = token_counts(inputs, tokenizers, "budget audit")
    rows: list[Row] = [
        {
            "tokenizer": name,
            "percentile": percentile,
            "paper_tokens": paper_tokens,
            "tokens": float(counts[name].mean()),
            "paper_retained": _PAPER_RETAINED,
            "retained": float((counts[name] / dense).mean()),
            "off_points": 100 * (float((counts[name] / dense).mean()) - _PAPER_RETAINED),
        }
        for name, (_, _, percentile, paper_tokens) in _PRINTED.items()
    ]
    notes = [
        "the blend of the fused score is not printed in the paper; here each statistic is divided by its largest cell"
        " in the image and the two are added",
        f"{len(dense)} images; the paper's figures are over the 548 of VisDrone val",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=inputs.read_all())


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    axes.barh([row["tokenizer"] for row in rows], [row["retained"] for row in rows], color=PALETTE[0], height=0.6)
    axes.axvline(_PAPER_RETAINED, color="0.25", linestyle="--", label=f"paper, {_PAPER_RETAINED}")
    axes.set(xlabel="share of the dense grid", xlim=(0.35, 0.45))
    axes.invert_yaxis()
    axes.legend()


STUDY = Study("budget-audit", "Table A11: token-budget audit of the 40% column", run)
