"""A study of our own: fine cover, the share of each object that is read at 16 px. It needs no detector and no training.

For every ground-truth box, the share of its area under 16-px tokens; what leaves is the mean over all and over small
boxes. Every 4th image and the rest are two halves: what is chosen on one must hold on the other.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.study.paper import AUDIT_BUDGETS, COMPACT, GATED, INVERTED, SINGLE_PASS, TOP_HAT, percentile
from vgtok.study.result import ImageJob, Inputs, Panel, Read, Result, Row, Study, image_jobs, line_plot, lines_by
from vgtok.study.tokenizers import SETTINGS, RandomGate, partitions
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

SMALL = 48.0
"""Side, the square root of the area, below which a box on the 2048 px canvas counts as small (32 px at source)."""

HALVES = ("every 4th image", "the other images")

_RANDOM_GATE = "random gate"
_NAMES = (SINGLE_PASS, _RANDOM_GATE, TOP_HAT, GATED, COMPACT)


def fine_cover(tokens: Tokens, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the area of each (N, 4) canvas box that lies under 16-px tokens: (N,)."""
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


def cover(inputs: Inputs) -> Result:
    """Measure the paper's tokenizers, a random gate and the compact score at matched 70, 40 and 20%."""
    inputs.printed_for(INVERTED)
    jobs = [job for job in image_jobs(inputs) if len(job.boxes)]
    measured = list(inputs.map(_image_cover, jobs, "fine cover"))
    rows: list[Row] = []
    for half, label in enumerate(HALVES):
        chosen = [image for job, image in zip(jobs, measured, strict=True) if (job.index % 4 != 0) == bool(half)]
        sides = np.concatenate([image["side"] for image in chosen])
        for mode, tokenizer, budget in _settings():
            key = f"{mode} {tokenizer} {budget}"
            shares = np.concatenate([image[key] for image in chosen])
            rows.append(
                {
                    "half": label,
                    "mode": mode,
                    "tokenizer": tokenizer,
                    "budget": budget,
                    "retained": float(np.mean([image[f"{key} retained"] for image in chosen])),
                    "all": float(shares.mean()),
                    "small": float(shares[sides < SMALL].mean()),
                }
            )
    notes = [
        f"{len(jobs)} images with boxes; small = square root of the area below {SMALL:g} px on the canvas",
        "percentile: the paper's thresholds, for Compact the shipped table's; exact: the same count for every image",
        *(_ordering(rows, label) for label in HALVES),
    ]
    panels = []
    for label in HALVES:
        own = [row for row in rows if (row["half"], row["mode"]) == (label, "percentile")]
        axes = {"xlabel": "share of the dense grid", "ylabel": "fine cover of small objects", "title": label}
        panels.append(Panel(lines_by(own, "tokenizer", _NAMES, "retained", "small"), axes))
    return Result(rows, notes, plot=line_plot(*panels, sharey=True), read=Read(inputs.data.name, len(jobs)))


def _settings() -> list[tuple[str, str, float]]:
    return [
        (mode, name, budget)
        for mode in ("percentile", "exact")
        for budget in AUDIT_BUDGETS
        for name in _NAMES
        if not (name == SINGLE_PASS and budget < 0.25)
    ]


def _tokenizer(mode: str, name: str, budget: float, job: ImageJob) -> Tokenizer:
    settings = {**SETTINGS[GATED if name == _RANDOM_GATE else name], "canvas": job.canvas}
    if name == _RANDOM_GATE:
        settings["gate"] = RandomGate(job.index)
    if mode == "exact":
        return Tokenizer(budget=budget, **settings)
    if name == COMPACT:
        return Tokenizer.calibrated("visdrone", budget, **settings)
    single = name == SINGLE_PASS
    return Tokenizer(
        percentile=(1 - budget) / 0.0075 if single else percentile(job.data, settings["rank"], budget), **settings
    )


def _image_cover(job: ImageJob) -> dict[str, Any]:
    """Return the fine cover of the boxes of one image under every setting, and the side of each box on the canvas."""
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


STUDIES = (Study("cover", "Fine cover: share of each object read at 16 px", cover),)
