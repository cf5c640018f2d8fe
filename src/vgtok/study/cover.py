"""A study of our own: fine cover, how much of each object is read at 16 px. No detector, no training.

For every ground-truth box, the share of its area under 16-px tokens; the mean over boxes, all and small ones. Every 4th
image and the rest are two halves: what is chosen on one must hold on the other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.parallel import map_with_progress
from vgtok.study.counts import partitions
from vgtok.study.paper import AUDIT_BUDGETS, INVERTED, percentile
from vgtok.study.result import PALETTE, ImageJob, Inputs, Read, Result, Row, Study, image_jobs
from vgtok.tokenize.geometry import CELL, CanvasPixels, nest
from vgtok.tokenize.split import Structure
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = 48.0
"""Side, as the square root of the area, below which a box on the 2048 canvas counts as small (32 px at source)."""

HALVES = ("every 4th image", "the other images")

_NAMES = ("Single-pass", "random gate", "Top-hat", "Top-hat + gate", "Compact")


def fine_cover(tokens: Tokens, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each (N, 4) canvas box's area that lies under 16-px tokens: (N,)."""
    fine = (tokens.cell_sizes() == CELL).astype(np.float64)
    # Area under fine cells left of and above every cell corner; between corners it is bilinear.
    integral = np.pad(fine, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    limits = np.array([tokens.width, tokens.height, tokens.width, tokens.height])
    x0, y0, x1, y1 = (np.clip(boxes, 0.0, limits) / CELL).T

    def below(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        column = np.minimum(x.astype(np.int64), fine.shape[1] - 1)
        row = np.minimum(y.astype(np.int64), fine.shape[0] - 1)
        right, down = x - column, y - row
        upper = integral[row, column] * (1 - right) + integral[row, column + 1] * right
        lower = integral[row + 1, column] * (1 - right) + integral[row + 1, column + 1] * right
        return np.asarray(upper * (1 - down) + lower * down)

    covered = below(x1, y1) - below(x0, y1) - below(x1, y0) + below(x0, y0)
    return np.asarray(covered / np.maximum((x1 - x0) * (y1 - y0), 1e-12))


@dataclass(frozen=True)
class RandomGate:
    """The gate's control: a statistic drawn at random, as max-pooled as the real one, so counts stay the same."""

    seed: int

    def __call__(self, frame: CanvasPixels) -> Structure:
        """A random value per cell, pooled to nodes."""
        cells = np.random.default_rng(self.seed).random(frame.extent.grid_shape(CELL), dtype=np.float32)
        return Structure(*nest(cells)[1:])


def run(inputs: Inputs) -> Result:
    """Fine cover of the paper's tokenizers, a random gate and the compact score at matched 70, 40 and 20%."""
    inputs.printed_for(INVERTED)
    jobs = [job for job in image_jobs(inputs) if len(job.boxes)]
    measured = list(map_with_progress(_image_cover, jobs, workers=inputs.workers, label="fine cover"))
    rows: list[Row] = []
    for half, label in enumerate(HALVES):
        chosen = [image for job, image in zip(jobs, measured, strict=True) if (job.index % 4 != 0) == bool(half)]
        sides = np.concatenate([image["side"] for image in chosen])
        for mode, tokenizer, budget in _settings():
            key = f"{mode} {tokenizer} {budget}"
            cover = np.concatenate([image[key] for image in chosen])
            rows.append(
                {
                    "half": label,
                    "mode": mode,
                    "tokenizer": tokenizer,
                    "budget": budget,
                    "retained": float(np.mean([image[f"{key} retained"] for image in chosen])),
                    "all": float(cover.mean()),
                    "small": float(cover[sides < SMALL].mean()),
                }
            )
    notes = [
        f"{len(jobs)} images with boxes; small = square root of the area below {SMALL:g} px on the canvas",
        "percentile: the paper's thresholds, for Compact the shipped table's; exact: the same count for every image",
        *(_ordering(rows, label) for label in HALVES),
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=Read(inputs.data.name, len(jobs)))


def _settings() -> list[tuple[str, str, float]]:
    return [
        (mode, name, budget)
        for mode in ("percentile", "exact")
        for budget in AUDIT_BUDGETS
        for name in _NAMES
        if not (name == "Single-pass" and budget < 0.25)
    ]


def _tokenizer(mode: str, name: str, budget: float, job: ImageJob) -> Tokenizer:
    rank = 0.0 if name in ("Top-hat", "Compact") else SHIPPED_RANK
    settings: dict[str, Any] = {"rank": rank, "canvas": job.canvas}
    if name == "Compact":
        settings["scorer"] = "compact"
    if name == "Single-pass":
        settings["splitter"] = "single_pass"
    if name == "random gate":
        settings["gate"] = RandomGate(job.index)
    if mode == "exact":
        return Tokenizer(budget=budget, **settings)
    if name == "Compact":
        return Tokenizer.calibrated("visdrone", budget, **settings)
    threshold = (1 - budget) / 0.0075 if name == "Single-pass" else percentile(job.data, rank, budget)
    return Tokenizer(percentile=threshold, **settings)


def _image_cover(job: ImageJob) -> dict[str, Any]:
    """Fine cover of one image's boxes under every setting, and each box's side on the canvas."""
    canvas = Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path)
    boxes = canvas.from_source(job.boxes)
    result: dict[str, Any] = {"side": np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))}
    tokenizers = (_tokenizer(*setting, job) for setting in _settings())
    for (mode, name, budget), tokens in zip(_settings(), partitions(canvas, tokenizers), strict=True):
        result[f"{mode} {name} {budget}"] = fine_cover(tokens, boxes)
        result[f"{mode} {name} {budget} retained"] = tokens.retained
    return result


def _ordering(rows: list[Row], half: str) -> str:
    chosen = {
        row["tokenizer"]: row["all"]
        for row in rows
        if row["half"] == half and row["mode"] == "percentile" and row["budget"] == 0.40
    }
    ordered = " < ".join(f"{name} {value:.3f}" for name, value in sorted(chosen.items(), key=lambda item: item[1]))
    return f"{half}, 40%: {ordered}"


def _plot(figure: "Figure", rows: list[Row]) -> None:
    for axes, half in zip(figure.subplots(1, 2, sharey=True), HALVES, strict=True):
        for colour, name in zip(PALETTE, _NAMES, strict=False):
            chosen = [r for r in rows if (r["half"], r["mode"], r["tokenizer"]) == (half, "percentile", name)]
            axes.plot([r["retained"] for r in chosen], [r["small"] for r in chosen], "o-", color=colour, label=name)
        axes.set(xlabel="share of the dense grid", title=half)
    figure.axes[0].set_ylabel("fine cover of small objects")
    figure.axes[0].legend()


STUDY = Study("cover", "Fine cover: share of each object read at 16 px", run)
