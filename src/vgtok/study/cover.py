"""A study of our own: fine cover, the share of each object that is read at 16 px. It needs no detector and no training.

For every ground-truth box, the share of its area under 16-px tokens; what leaves is the mean over all, over small and
over large boxes. Every 4th image and the rest are two halves: what is chosen on one must hold on the other. Over all
images in order, budgets per image stand beside the same mean held over the stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.slicing.stream import StreamBudget, demand
from vgtok.study.paper import AUDIT_BUDGETS, COMPACT, GATED, GATED_33, INVERTED, SINGLE_PASS, TOP_HAT, percentile
from vgtok.study.result import ImageJob, Inputs, Panel, Read, Result, Row, Study, image_jobs, line_plot, lines_by
from vgtok.study.tokenizers import SETTINGS, RandomGate, partitions
from vgtok.tokenize.geometry import CELL, CanvasPixels, Extent
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

SMALL = 48.0
"""Side, the square root of the area, below which a box on the 2048 px canvas counts as small (32 px at source)."""

LARGE = 144.0
"""Side on the canvas above which a box counts as large (96 px at source)."""

HALVES = ("every 4th image", "the other images")
STREAM = "all images"

_RANDOM_GATE = "random gate"
_NAMES = (SINGLE_PASS, _RANDOM_GATE, TOP_HAT, GATED, GATED_33, COMPACT)


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
    streamed = _stream_shares(list(inputs.map(_demands, jobs, "demand")))
    coverings = [_CoverJob(job, shares) for job, shares in zip(jobs, streamed, strict=True)]
    measured = list(inputs.map(_image_cover, coverings, "fine cover"))
    rows: list[Row] = []
    for half, label in enumerate(HALVES):
        chosen = [image for job, image in zip(jobs, measured, strict=True) if (job.index % 4 != 0) == bool(half)]
        rows += [_row(label, setting, chosen) for setting in _settings() if setting[0] != "stream"]
    compared = [setting for setting in _settings() if setting[0] == "stream"]
    for _, tokenizer, budget in compared:
        rows += [_row(STREAM, (mode, tokenizer, budget), measured) for mode in ("exact", "stream")]
    notes = [
        f"{len(jobs)} images with boxes; small and large = square root of the area below {SMALL:g} and above "
        f"{LARGE:g} px on the canvas, 32 and 96 px in the mean image",
        "percentile: the paper's thresholds, for Compact the shipped table's; exact: the same count for every image; "
        "stream: the mean over the images in order, each between half and one and a half times the budget",
        *(_ordering(rows, label) for label in HALVES),
        *(_gain(rows, tokenizer, budget) for _, tokenizer, budget in compared),
    ]
    panels = []
    for label in HALVES:
        own = [row for row in rows if (row["half"], row["mode"]) == (label, "percentile")]
        axes = {"xlabel": "share of the dense grid", "ylabel": "fine cover of small objects", "title": label}
        panels.append(Panel(lines_by(own, "tokenizer", _NAMES, "retained", "small"), axes))
    return Result(rows, notes, plot=line_plot(*panels, sharey=True), read=Read(inputs.data.name, len(jobs)))


def _row(label: str, setting: tuple[str, str, float], images: Sequence[Mapping[str, Any]]) -> Row:
    """Return the row of one setting over some of the images."""
    mode, tokenizer, budget = setting
    key = f"{mode} {tokenizer} {budget}"
    sides = np.concatenate([image["side"] for image in images])
    shares = np.concatenate([image[key] for image in images])
    return {
        "half": label,
        "mode": mode,
        "tokenizer": tokenizer,
        "budget": budget,
        "retained": float(np.mean([image[f"{key} retained"] for image in images])),
        "all": float(shares.mean()),
        "small": float(shares[sides < SMALL].mean()),
        "large": float(shares[sides > LARGE].mean()) if (sides > LARGE).any() else None,
    }


def _settings() -> list[tuple[str, str, float]]:
    compared = [
        (mode, name, budget)
        for mode in ("percentile", "exact")
        for budget in AUDIT_BUDGETS
        for name in _NAMES
        if not (name == SINGLE_PASS and budget < 0.25)
    ]
    return compared + [("stream", name, budget) for budget in AUDIT_BUDGETS for name in (GATED, COMPACT)]


def _demands(job: ImageJob) -> tuple[Extent, list[NDArray[np.float32]]]:
    """Return the size of an image on its canvas and its demand at every budget."""
    pixels = CanvasPixels(Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path).image)
    return pixels.extent, [demand(pixels, StreamBudget(budget).bounds) for budget in AUDIT_BUDGETS]


def _stream_shares(demands: Sequence[tuple[Extent, list[NDArray[np.float32]]]]) -> list[tuple[float, ...]]:
    """Return for each image, in order, the share a stream of each budget gives it."""
    streams = [StreamBudget(budget) for budget in AUDIT_BUDGETS]
    return [
        tuple(stream.decide(own, extent) for stream, own in zip(streams, each, strict=True)) for extent, each in demands
    ]


@dataclass(frozen=True)
class _CoverJob:
    """One image, and its share in a stream of each budget."""

    image: ImageJob
    shares: tuple[float, ...]


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


def _image_cover(covering: _CoverJob) -> dict[str, Any]:
    """Return the fine cover of the boxes of one image under every setting, and the side of each box on the canvas."""
    job, streamed = covering.image, dict(zip(AUDIT_BUDGETS, covering.shares, strict=True))
    canvas = Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path)
    boxes = canvas.from_source(job.boxes)
    result: dict[str, Any] = {"side": np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))}
    tokenizers = (
        _tokenizer("exact", name, streamed[budget], job) if mode == "stream" else _tokenizer(mode, name, budget, job)
        for mode, name, budget in _settings()
    )
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


def _gain(rows: list[Row], tokenizer: str, budget: float) -> str:
    """Return what a stream gains in small objects over the same budget for every image."""
    exact, stream = (
        next(row for row in rows if (row["half"], row["mode"], row["tokenizer"], row["budget"]) == key)
        for key in ((STREAM, mode, tokenizer, budget) for mode in ("exact", "stream"))
    )
    return (
        f"{tokenizer}, {budget:.0%} over the stream, a mean of {stream['retained']:.2%}: small objects "
        f"{100 * (stream['small'] - exact['small']):+.2f} points"
    )


STUDIES = (Study("cover", "Fine cover: share of each object read at 16 px", cover),)
