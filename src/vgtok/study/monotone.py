"""Section B: retention must fall with the percentile that sets it; upsample MSE under a quadtree does not."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vgtok.study.counts import token_counts
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.calibrate import RUNGS
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER_FLAT = 0.2493
_SCORERS = ("upsample_mse", "tophat")


def run(inputs: Inputs) -> Result:
    """Sweep upsample MSE, and the top-hat beside it, over 32 rungs of the ungated quadtree."""
    tokenizers = {
        f"{scorer} {p}": Tokenizer(percentile=p, rank=0.0, scorer=scorer, canvas=inputs.canvas)
        for scorer in _SCORERS
        for p in RUNGS
    }
    counts, dense = token_counts(inputs, tokenizers, "monotone check")
    rows: list[Row] = [
        {
            "percentile": p,
            "paper_upsample_mse": _PAPER_FLAT,
            **{scorer: float((counts[f"{scorer} {p}"] / dense).mean()) for scorer in _SCORERS},
        }
        for p in RUNGS
    ]
    flat = {row["upsample_mse"] for row in rows}
    falls = all(later["tophat"] <= earlier["tophat"] for earlier, later in pairwise(rows))
    notes = [
        f"upsample MSE keeps {min(flat):.4f} to {max(flat):.4f} at every percentile; the paper prints {_PAPER_FLAT}",
        f"the top-hat {'falls' if falls else 'does NOT fall'} monotonically over the same rungs",
        "the finest grid of upsample MSE is zero by definition, so the threshold taken there is zero too: roots whose"
        " 32-px children lose any detail split, and nothing below them does",
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=inputs.read_all())


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    for colour, scorer in zip(PALETTE[1::-1], _SCORERS, strict=True):
        axes.plot([row["percentile"] for row in rows], [row[scorer] for row in rows], ".-", color=colour, label=scorer)
    axes.axhline(_PAPER_FLAT, color="0.25", linestyle=":", label=f"paper, {_PAPER_FLAT}")
    axes.set(xlabel="percentile", ylabel="share of the dense grid")
    axes.legend()


STUDY = Study("monotone", "Upsample MSE under a quadtree does not follow its percentile", run)
