"""A study of our own: with an exact budget every image gets the count asked for, to the token."""

from typing import TYPE_CHECKING, Any

import numpy as np

from vgtok.study.counts import token_counts
from vgtok.study.result import PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = tuple(round(0.05 * step, 2) for step in range(2, 21))


def run(inputs: Inputs) -> Result:
    """Tokenize every image at nineteen budgets from 10 to 100% and look at the worst one."""
    tokenizers = {f"{budget:.2f}": Tokenizer(budget=budget, canvas=inputs.canvas) for budget in BUDGETS}
    counts, dense = token_counts(inputs, tokenizers, "exact budgets")
    rows: list[Row] = []
    for budget in BUDGETS:
        tokens = counts[f"{budget:.2f}"]
        off = np.abs(tokens - budget * dense)
        rows.append(
            {
                "budget": budget,
                "least_tokens": int(tokens.min()),
                "most_tokens": int(tokens.max()),
                "retained": float((tokens / dense).mean()),
                "worst_off_tokens": float(off.max()),
                "worst_image": inputs.data.images[int(off.argmax())].name,
            }
        )
    worst = max(rows, key=lambda row: float(row["worst_off_tokens"]))
    notes = [
        f"worst case over {len(dense)} images and {len(BUDGETS)} budgets: {worst['worst_off_tokens']:.2f} tokens off"
        f" at budget {worst['budget']} on {worst['worst_image']}"
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=inputs.read_all())


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    axes.bar([row["budget"] for row in rows], [row["worst_off_tokens"] for row in rows], 0.03, color=PALETTE[0])
    axes.axhline(2, color="0.25", linestyle="--", label="2 tokens")
    axes.set(xlabel="budget", ylabel="tokens off, worst image")
    axes.legend()


STUDY = Study("exact", "Exact budgets: tokens against the target, worst image", run)
