"""A study of our own: how near packed features stay to dense ones, with real weights and no detector.

Cosine similarity per 16-px cell between the packed and the dense run of one ImageNet ViT, averaged apart over cells
under ground-truth boxes and over the rest. First the tokenizers at matched budgets, a random partition as the floor;
then each way of reading coarse tokens, changed one at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.encode.config import EncoderConfig, configuration
from vgtok.encode.dense import cell_similarity, run_dense, run_packed
from vgtok.encode.encoder import Encoder
from vgtok.encode.loading import load_weights
from vgtok.parallel import map_with_progress
from vgtok.study.environment import weights_file
from vgtok.study.paper import BUDGETS
from vgtok.study.result import DEIT_WEIGHTS, PALETTE, ImageJob, Inputs, Read, Result, Row, Study, image_jobs
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, CanvasPixels, Pyramid, nest
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAMES = 10
"""Frames, spread evenly over the data set: a run is dozens of forward passes per frame."""

TOKENIZERS = ("random", "Single-pass", "Top-hat", "Top-hat + gate")
OPTION_BUDGETS = (0.40, 0.20)
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "position": ("center", "corner", "mean"),
    "resampling": ("area", "bilinear", "bicubic"),
    "proportional": (False, True),
    "padding": ("exact", "scaled", "dropped"),
}


@dataclass(frozen=True)
class RandomScore:
    """The floor: a score drawn at random for every cell, so that a budget is spent anywhere."""

    seed: int

    def __call__(self, frame: CanvasPixels) -> Pyramid:
        """A random value per cell, pooled to nodes."""
        return nest(np.random.default_rng(self.seed).random(frame.extent.grid_shape(CELL), dtype=np.float32))


@dataclass(frozen=True)
class Setting:
    """One row: which layout of the weights, what is being compared, and at which budget."""

    layout: str
    compared: str
    choice: str
    budget: float
    config: EncoderConfig


def run(inputs: Inputs) -> Result:
    """Compare on a few frames, in the detector's windows and, for the options, in plain global attention too."""
    weights = weights_file(DEIT_WEIGHTS)
    jobs = image_jobs(Inputs(inputs.annotated, inputs.workers))
    plain = configuration("vit-tiny")
    return compare(jobs[:: max(1, len(jobs) // FRAMES)][:FRAMES], weights, plain)


def compare(jobs: Sequence[ImageJob], weights: Path, plain: EncoderConfig) -> Result:
    """The study on given frames, with a timm checkpoint of the `plain` configuration."""
    layouts = {"windowed": plain.windowed(), "global": plain}
    settings = list(_settings(layouts))
    measured: dict[Setting, list[tuple[float, float]]] = {setting: [] for setting in settings}
    steps = [(job, layout) for job in jobs for layout in layouts]

    def step(pair: tuple[ImageJob, str]) -> None:
        job, layout = pair
        chosen = [setting for setting in settings if setting.layout == layout]
        for setting, similarity in zip(chosen, _similarities(job, chosen, weights), strict=True):
            measured[setting].append(similarity)

    # One process: torch itself spreads each pass over the cores.
    for _ in map_with_progress(step, steps, workers=1, label="fidelity"):
        pass
    rows: list[Row] = [
        {
            "layout": setting.layout,
            "compared": setting.compared,
            "choice": setting.choice,
            "budget": setting.budget,
            "on_objects": float(np.nanmean([on for on, _ in values])),
            "elsewhere": float(np.mean([rest for _, rest in values])),
        }
        for setting, values in measured.items()
    ]
    notes = [
        f"{len(jobs)} frames; cosine similarity of packed to dense features after the last norm, mean over cells",
        "windowed: windows of 24 cells and a global block every third, as a detector runs; global: as trained",
        *(_ordering(rows, budget) for budget in BUDGETS),
        *(_best(rows, layout, option) for layout in layouts for option in _OPTIONS),
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows), read=Read(jobs[0].data, len(jobs)))


def _settings(layouts: Mapping[str, EncoderConfig]) -> Iterator[Setting]:
    for budget in BUDGETS:
        for tokenizer in TOKENIZERS:
            if not (tokenizer == "Single-pass" and budget < 0.25):
                yield Setting("windowed", "tokenizer", tokenizer, budget, layouts["windowed"])
    for layout, config in layouts.items():
        for option, choices in _OPTIONS.items():
            if option == "padding" and config.window is None:
                continue
            for choice in choices:
                for budget in OPTION_BUDGETS:
                    yield Setting(layout, option, str(choice), budget, replace(config, **{option: choice}))


def _similarities(job: ImageJob, settings: Sequence[Setting], weights: Path) -> Iterator[tuple[float, float]]:
    """Similarity on objects and elsewhere in one image, per setting; all settings share one layout."""
    canvas = Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path)
    under_boxes = object_cells(canvas, job.boxes)
    encoders: dict[EncoderConfig, Encoder] = {}
    dense = None
    known: dict[tuple[EncoderConfig, Tokenizer], tuple[float, float]] = {}
    for setting in settings:
        if setting.config not in encoders:
            encoders[setting.config] = Encoder(replace(setting.config, fusion=())).eval()
            load_weights(encoders[setting.config], weights, "timm")
        encoder, tokenizer = encoders[setting.config], _tokenizer(setting, job)
        if dense is None:
            dense = run_dense(encoder, canvas, tokenizer)
        if (setting.config, tokenizer) not in known:
            similarity = cell_similarity(run_packed(encoder, canvas, tokenizer), dense)
            on_objects = float(similarity[under_boxes].mean()) if under_boxes.any() else float("nan")
            known[setting.config, tokenizer] = (on_objects, float(similarity[~under_boxes].mean()))
        yield known[setting.config, tokenizer]


def _tokenizer(setting: Setting, job: ImageJob) -> Tokenizer:
    name = setting.choice if setting.compared == "tokenizer" else TOKENIZERS[-1]
    return Tokenizer(
        budget=setting.budget,
        canvas=job.canvas,
        rank=SHIPPED_RANK if name == "Top-hat + gate" else 0.0,
        scorer=RandomScore(job.index) if name == "random" else "tophat",
        splitter="single_pass" if name == "Single-pass" else "quadtree",
    )


def object_cells(canvas: Canvas, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which (rows, columns) cells any of the (N, 4) boxes, in the image's own pixels, touches."""
    touched = np.zeros((canvas.extent.rows(CELL), canvas.extent.columns(CELL)), dtype=np.bool_)
    for x0, y0, x1, y1 in canvas.from_source(boxes) / CELL:
        touched[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = True
    return touched


def _ordering(rows: list[Row], budget: float) -> str:
    chosen = [row for row in rows if row["compared"] == "tokenizer" and row["budget"] == budget]
    ordered = sorted(chosen, key=lambda row: float(row["on_objects"]))
    return f"on objects at {budget:.0%}: " + " < ".join(f"{row['choice']} {row['on_objects']:.4f}" for row in ordered)


def _best(rows: list[Row], layout: str, option: str) -> str:
    """How each choice of an option does on objects in one layout, mean over budgets, best first."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if (row["layout"], row["compared"]) == (layout, option):
            values.setdefault(row["choice"], []).append(row["on_objects"])
    ranked = sorted(((float(np.mean(group)), choice) for choice, group in values.items()), reverse=True)
    return f"{layout}, {option}: " + (" > ".join(f"{choice} {value:.4f}" for value, choice in ranked) or "no windows")


def _plot(figure: "Figure", rows: list[Row]) -> None:
    chosen = [row for row in rows if row["compared"] == "tokenizer"]
    for axes, column in zip(figure.subplots(1, 2, sharey=True), ("on_objects", "elsewhere"), strict=True):
        for colour, name in zip(PALETTE, TOKENIZERS, strict=False):
            own = [row for row in chosen if row["choice"] == name]
            axes.plot([row["budget"] for row in own], [row[column] for row in own], "o-", color=colour, label=name)
        axes.set(xlabel="share of the dense grid", title=column.replace("_", " "))
    figure.axes[0].set_ylabel("cosine similarity to dense")
    figure.axes[0].legend()


STUDY = Study("fidelity", "Packed features against dense ones, DeiT-Tiny", run)
