"""Table A14: what the gate declines to refine, by distance to the nearest object.

The gate fires at rank 0.20 on the ungated percentiles of the first 150 images. Every stopped node weighs as many tokens
as it does not spend; nodes below a stopped one belong to it.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.parallel import map_with_progress
from vgtok.study.nodes import cells_to_nearest
from vgtok.study.paper import AUDIT_BUDGETS, percentile
from vgtok.study.result import PALETTE, ImageJob, Inputs, Read, Result, Row, Study, image_jobs
from vgtok.tokenize.geometry import NODE, ROOT, CanvasPixels, children
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import GATES, busy_nodes, count_tokens, fired_nodes, gated_splits
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = 150
BINS = ("on_object", "one_node", "two_three_nodes", "farther")

_PAPER = {
    "visdrone": {
        0.70: (4.4, 13.1, 6.3, 5.1, 12.3, 76.4),
        0.40: (2.3, 6.9, 14.6, 6.0, 9.9, 69.5),
        0.20: (0.9, 2.8, 29.0, 6.4, 7.6, 57.0),
    },
    "aitodv2": {
        0.70: (4.1, 12.2, 0.4, 0.9, 3.3, 95.4),
        0.40: (2.2, 6.6, 1.4, 1.3, 3.3, 94.1),
        0.20: (0.9, 2.7, 3.0, 1.8, 3.0, 92.1),
    },
}
"""Fires on (% of the dense grid's cells), frees (points), then the four bins (%)."""


def run(inputs: Inputs) -> Result:
    """Sum what the gate stops over the first 150 images at three budgets."""
    name = inputs.printed_for(_PAPER)
    jobs = image_jobs(inputs, IMAGES)
    # (images, budgets, fired + freed + dense + bins)
    totals = np.array(list(map_with_progress(_stopped, jobs, workers=inputs.workers, label="coarsened"))).sum(axis=0)
    rows: list[Row] = []
    for budget, (fired, freed, dense, *bins) in zip(AUDIT_BUDGETS, totals.tolist(), strict=True):
        measured = (100 * fired / dense, 100 * freed / dense, *(100 * share / sum(bins) for share in bins))
        row: dict[str, Any] = {"budget": budget}
        for label, paper, value in zip(("fires_on", "frees", *BINS), _PAPER[name][budget], measured, strict=True):
            row[f"paper_{label}"] = paper
            row[label] = round(value, 2)
        rows.append(row)
    notes = [
        f"first {len(jobs)} images in file order, rank {SHIPPED_RANK}; per cent, 'frees' in points of the dense grid",
        "'fires on' is fired nodes over the dense grid's cells, the reading that fits the paper's column",
        "a bin holds stopped nodes whose gap to the nearest box is none, up to one finest (16 px) cell, up to three, or"
        " more; in cells the bins land near the paper's, in sides of the stopped node they do not",
    ]
    return Result(rows, notes, _paper_only(name), lambda figure: _plot(figure, rows), read=Read(name, len(jobs)))


def _stopped(job: ImageJob) -> NDArray[np.float64]:
    """Of one image, per budget: nodes that fire, tokens freed, dense tokens, tokens not spent per distance bin."""
    canvas = Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path)
    frame = CanvasPixels(canvas.image)
    scores, structure = SCORES["tophat"](frame), GATES["lambda_min"](frame)
    boxes = canvas.from_source(job.boxes)
    result = np.zeros((len(AUDIT_BUDGETS), 3 + len(BINS)))
    for i, budget in enumerate(AUDIT_BUDGETS):
        busy = busy_nodes(scores, frame.extent, percentile(job.data, 0.0, budget))
        fired = fired_nodes(busy, structure, SHIPPED_RANK)
        gated = gated_splits(busy, structure, SHIPPED_RANK)
        freed = count_tokens(busy, frame.extent) - count_tokens(gated, frame.extent)
        result[i, :3] = fired.middle.sum() + fired.coarse.sum(), freed, frame.extent.dense
        # A stopped root saves its own split and those of its busy children; a stopped node only its own.
        below_root = busy.middle.reshape(fired.coarse.shape[0], 2, -1, 2).sum(axis=(1, 3))
        alone = fired.middle & children(gated.coarse)
        for size, stopped, saved in (
            (ROOT, fired.coarse, 3 + 3 * below_root),
            (NODE, alone, np.full_like(alone, 3, int)),
        ):
            rows, columns = np.nonzero(stopped)
            gaps = cells_to_nearest(np.stack([columns, rows], axis=1) * size, boxes, size)
            bins = np.digitize(gaps, (1e-12, 1.0, 3.0), right=True)
            result[i, 3:] += np.bincount(bins, weights=saved[stopped], minlength=len(BINS))
    return result


def _paper_only(measured: str) -> list[Row]:
    return [
        {"budget": budget, **dict(zip(("fires_on", "frees", *BINS), values, strict=True)), "status": f"needs {name}"}
        for name, rows in _PAPER.items()
        if name != measured
        for budget, values in rows.items()
    ]


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    left_measured, left_paper = np.zeros(len(rows)), np.zeros(len(rows))
    places = np.arange(len(rows), dtype=float)
    for colour, label in zip(PALETTE, BINS, strict=False):
        measured = np.array([row[label] for row in rows])
        paper = np.array([row[f"paper_{label}"] for row in rows])
        axes.barh(places - 0.2, measured, 0.36, left=left_measured, color=colour, label=label.replace("_", " "))
        axes.barh(places + 0.2, paper, 0.36, left=left_paper, color=colour, alpha=0.45)
        left_measured, left_paper = left_measured + measured, left_paper + paper
    axes.set_yticks(places, [f"{row['budget']:.0%}" for row in rows])
    axes.set(xlabel="% of tokens not spent (measured above, paper faint below)", ylabel="budget")
    axes.invert_yaxis()
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.12), frameon=False)


STUDY = Study("coarsened", "Table A14: coarsened tokens by distance to the nearest object", run)
