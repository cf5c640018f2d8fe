"""The packed encoder against the dense one: Table 3, what each costs, and how close their features are.

FLOPs are counted from the real partition of every image. Features are compared with ImageNet weights and no detector:
cosine similarity per 16-px cell, averaged over cells under ground-truth boxes and over the rest.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgtok.defaults import DEFAULT_MODEL
from vgtok.detect.config import DETECTORS, MAX_DETECTIONS
from vgtok.detect.detector import Detector
from vgtok.detect.loading import load
from vgtok.detect.model import detection_flops, detector_parameters
from vgtok.detect.neck import level_shapes
from vgtok.detect.sites import sites_of
from vgtok.encode.config import EncoderConfig, configuration
from vgtok.encode.encoder import Encoder
from vgtok.encode.loading import load_weights
from vgtok.encode.modes import (
    RUN_MODES,
    cell_similarity,
    encoder_flops,
    peak_megabytes,
    run_dense,
    run_packed,
)
from vgtok.parallel import map_with_progress
from vgtok.study.paper import BUDGETS, GATED, RANDOM, SINGLE_PASS, TOP_HAT
from vgtok.study.registry import weights_file
from vgtok.study.result import (
    DEIT_WEIGHTS,
    ImageJob,
    Inputs,
    Line,
    Panel,
    Read,
    Result,
    Row,
    Study,
    image_jobs,
    line_plot,
    lines_by,
    paired,
)
from vgtok.study.tokenizers import SETTINGS, partitions
from vgtok.tokenize.canvas import Canvas, fit_canvas, read_image
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

CONFIG = "co-detr-eva02-large"
TIMED_MODEL = DEFAULT_MODEL
"""The detector whose ms and GB are measured: the paper's takes minutes per image on a CPU."""

_COLUMNS = ("encoder_gflops", "end_to_end_gflops", "encoder_ms", "encoder_gb", "end_to_end_ms")
"""The cost columns of the paper's table, in the order of `_PRINTED`."""

_SETTINGS = (("dense", 1.0), *(("packed", budget) for budget in (1.0, 0.8, 0.7, 0.4, 0.2)), ("control", 0.7))
_PRINTED = {
    ("dense", 1.0): (8282.0, 12955.5, 92.3, 0.466, 182.8),
    ("packed", 0.8): (4498.0, 9172.4, 69.8, 0.408, 158.9),
    ("packed", 0.7): (4093.0, 8767.2, 66.9, 0.372, 154.9),
    ("packed", 0.4): (2634.0, 7307.7, 53.0, 0.251, 136.9),
    ("control", 0.7): (8293.0, 12967.0, 104.0, 0.498, 193.3),
}
"""Encoder and end-to-end GFLOPs, encoder ms and GB, and end-to-end ms as printed; the 40% row kept 46.7% of the tokens.

The paper's packed counts only fit if attention is left out. Here it is counted, and the count without it is beside it.
"""


@dataclass(frozen=True)
class _Counted:
    """The counts of one image under one setting."""

    tokens: int
    flops: int
    attention: int
    rows: int
    columns: int
    sites: int | None


def compute(inputs: Inputs) -> Result:
    """Partition every image at each budget and count the FLOPs of its layout."""
    jobs = image_jobs(inputs)
    counted = list(inputs.map(_count, jobs, "compute"))
    config = DETECTORS[CONFIG]
    # A dense neck and head cost the same at every budget, a sparse one by the number of sites: count each once.
    shapes = {
        (image.rows, image.columns, sites) for images in counted for image in images for sites in (None, image.sites)
    }
    after = {shape: sum(detection_flops(config, *shape[:2], sites=shape[2]).values()) / 1e9 for shape in shapes}
    after_encoder = float(np.mean([after[images[0].rows, images[0].columns, None] for images in counted]))
    timed = time_settings(jobs[0], TIMED_MODEL)
    rows: list[dict[str, Any]] = []
    for number, (execution, budget) in enumerate(_SETTINGS):
        images = [image[number] for image in counted]
        gflops, attention = (float(np.mean([getattr(i, n) for i in images])) / 1e9 for n in ("flops", "attention"))
        paper = dict(zip(_COLUMNS, _PRINTED.get((execution, budget), (None,) * len(_COLUMNS)), strict=True))
        sparse = float(np.mean([after[image.rows, image.columns, image.sites] for image in images]))
        measured = {
            "encoder_gflops": gflops,
            "without_attention_gflops": gflops - attention,
            "end_to_end_gflops": gflops + after_encoder,
            "sparse_head_gflops": gflops + sparse,
            **timed[number],
        }
        tokens = float(np.mean([image.tokens for image in images]))
        row: dict[str, Any] = {"execution": execution, "budget": budget, "tokens": tokens}
        row |= paired(measured, paper)
        dense = rows[0] if rows else row
        row["dense_over_this"] = dense["encoder_gflops"] / gflops
        row["end_to_end_dense_over_this"] = dense["end_to_end_gflops"] / row["end_to_end_gflops"]
        row["sparse_dense_over_this"] = dense["end_to_end_gflops"] / row["sparse_head_gflops"]
        rows.append(row)
    parameters = detector_parameters(config)
    total = sum(parameters.values())
    notes = [
        f"{CONFIG}: {(total - parameters['fusion']) / 1e6:.2f}M parameters, {total / 1e6:.2f}M with the fusion",
        f"neck and query head: {after_encoder:.1f} GFLOPs at every budget; auxiliary heads do not run",
        *_sparse_notes(rows, after_encoder),
        f"ms and GB: {TIMED_MODEL} on this machine, one image, float32, GB of tensors; the paper's are of {CONFIG} in "
        "fp16 on an H100: compare each with its dense row",
        f"{len(jobs)} images, exact budgets, Top-hat + gate; two FLOPs per multiply-add, attention included",
        "the paper's packed rows are near the count without attention; its 40% row kept 46.7% of the tokens",
        "packed at 100% costs less than dense because windows at the edge are not padded",
    ]
    also = {"config": CONFIG, "parameters": parameters}
    packed = [row for row in rows if row["execution"] == "packed"]
    budgets = [row["budget"] for row in packed]
    columns = {"counted": "encoder_gflops", "attention left out": "without_attention_gflops"}
    lines = [Line(budgets, [r[column] for r in packed], label, i) for i, (label, column) in enumerate(columns.items())]
    printed = [row for row in packed if row["paper_encoder_gflops"] is not None]
    lines.append(
        Line([r["budget"] for r in printed], [r["paper_encoder_gflops"] for r in printed], "paper", "0.15", "x")
    )
    axes = {"xlabel": "share of the dense grid", "ylabel": "encoder GFLOPs", "ylim": (0, None)}
    plot = line_plot(Panel(lines, axes, {"dense": rows[0]["encoder_gflops"]}))
    return Result(rows, notes, plot=plot, also=also, read=inputs.read_all())


def _sparse_notes(rows: Sequence[Row], constant: float) -> Iterator[str]:
    """Say what the sparse head saves where tokens are packed."""
    for row in rows:
        if row["execution"] == "packed" and row["budget"] < 1:
            after = row["sparse_head_gflops"] - row["encoder_gflops"]
            yield (
                f"sparse head at {row['budget']:.0%}: neck and head {after:.0f} GFLOPs instead of {constant:.0f}; "
                f"dense costs {row['sparse_dense_over_this']:.2f} x as much end to end, "
                f"{row['end_to_end_dense_over_this']:.2f} x with a dense head"
            )


def time_settings(job: ImageJob, model: str) -> list[dict[str, float | None]]:
    """Return ms and GB of encoder and detector for one image in every setting, by a detector with its own canvas.

    The second run of each is timed, and the sparse head only where tokens are packed.
    """
    detector = load(model, device="cpu", dtype="float32")
    canvas = fit_canvas(read_image(job.path), detector.canvas)
    found = []
    for execution, budget in _SETTINGS:
        tokenizer = Tokenizer(budget=budget, canvas=detector.canvas)
        encode = partial(RUN_MODES[execution], detector.model.encoder, canvas, tokenizer)
        detect, sparse = (partial(_detect, detector, canvas, tokenizer, encode, sparse=way) for way in (False, True))
        packed = execution == "packed"
        found.append(
            {
                "encoder_ms": _milliseconds(encode),
                "encoder_gb": peak_megabytes(encode) / 1e3,
                "end_to_end_ms": _milliseconds(detect),
                "end_to_end_gb": peak_megabytes(detect) / 1e3,
                "sparse_head_ms": _milliseconds(sparse) if packed else None,
                "sparse_head_gb": peak_megabytes(sparse) / 1e3 if packed else None,
            }
        )
    return found


def _detect(
    detector: Detector, canvas: Canvas, tokenizer: Tokenizer, encode: Callable[[], Tensor], *, sparse: bool
) -> None:
    """Encode a canvas and detect in it with the detector's own head."""
    maps = [encode()]
    with detector.running():
        sites = detector.model.sites(maps, [tokenizer.partition(canvas)]) if sparse else None
        detector.model.predict_maps(maps, [(canvas.height, canvas.width)], MAX_DETECTIONS, detector.head, sites)


def _milliseconds(run: Callable[[], object]) -> float:
    run()
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _sites(tokens: Tokens) -> int | None:
    """Return the positions of the finest level that the sparse head of the paper's detector computes."""
    stride = DETECTORS[CONFIG].strides[0]
    shape = level_shapes(tokens.extent.rows(CELL), tokens.extent.columns(CELL), (stride,))[0]
    sites = sites_of(tokens, stride, shape, torch.device("cpu"))
    return None if sites is None else len(sites)


def _count(job: ImageJob) -> list[_Counted]:
    config = DETECTORS[CONFIG].encoder_config()
    tokenizers = [Tokenizer(budget=budget, canvas=job.canvas) for _, budget in _SETTINGS]
    layouts = partitions(tokenizers[0].to_canvas(job.path), tokenizers)
    return [
        _Counted(
            len(tokens),
            sum(flops := encoder_flops(execution, config, tokens)),
            flops.attention,
            tokens.extent.rows(CELL),
            tokens.extent.columns(CELL),
            _sites(tokens) if execution == "packed" else None,
        )
        for (execution, _), tokens in zip(_SETTINGS, layouts, strict=True)
    ]


FRAMES = 10
"""Images, evenly spread over the data set: each takes dozens of forward passes."""

_TOKENIZERS = (RANDOM, SINGLE_PASS, TOP_HAT, GATED)
_OPTION_BUDGETS = (0.40, 0.20)
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "position": ("center", "corner", "mean"),
    "resampling": ("area", "bilinear", "bicubic"),
    "proportional": (False, True),
    "padding": ("exact", "scaled", "dropped"),
}


@dataclass(frozen=True)
class _Setting:
    """One row: the layout of the encoder, the option compared and its choice, and the budget."""

    layout: str
    compared: str
    choice: str
    budget: float
    config: EncoderConfig


def fidelity(inputs: Inputs) -> Result:
    """Compare features on a few images, in the detector's windows and, for the options, in global attention too.

    With a model, a checkpoint of DINOv2 or a folder of transformers, compare the features of that one, wrapped.
    """
    jobs = image_jobs(Inputs(inputs.annotated, inputs.workers))
    if inputs.models:
        from vgtok.study.host_fidelity import FRAMES as FEW
        from vgtok.study.host_fidelity import compare_host

        return compare_host(_spread(jobs, inputs.limit or FEW), inputs.model)
    weights = weights_file(DEIT_WEIGHTS)
    return compare(_spread(jobs, inputs.limit or FRAMES), weights, configuration("vit-tiny"))


def _spread(jobs: Sequence[ImageJob], count: int) -> Sequence[ImageJob]:
    return jobs[:: max(1, len(jobs) // count)][:count]


def compare(jobs: Sequence[ImageJob], weights: Path, plain: EncoderConfig) -> Result:
    """Compare on given images, with a timm checkpoint of the `plain` configuration.

    First the tokenizers at matched budgets, a random partition as the baseline; then each way to read coarse tokens,
    one changed at a time.
    """
    layouts = {"windowed": plain.windowed(), "global": plain}
    settings = list(_settings(layouts))
    measured: dict[_Setting, list[tuple[float, float]]] = {setting: [] for setting in settings}
    steps = [(job, layout) for job in jobs for layout in layouts]

    def step(pair: tuple[ImageJob, str]) -> None:
        job, layout = pair
        chosen = [setting for setting in settings if setting.layout == layout]
        for setting, similarity in zip(chosen, _similarities(job, chosen, weights), strict=True):
            measured[setting].append(similarity)

    # One process: torch runs each pass on all cores.
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
    compared = [row for row in rows if row["compared"] == "tokenizer"]
    panels = [
        Panel(
            lines_by(compared, "choice", _TOKENIZERS, "budget", column),
            {"xlabel": "share of the dense grid", "ylabel": "cosine similarity to dense", "title": title},
        )
        for column, title in (("on_objects", "on objects"), ("elsewhere", "elsewhere"))
    ]
    return Result(rows, notes, plot=line_plot(*panels, sharey=True), read=Read(jobs[0].data, len(jobs)))


def _settings(layouts: Mapping[str, EncoderConfig]) -> Iterator[_Setting]:
    for budget in BUDGETS:
        for tokenizer in _TOKENIZERS:
            if not (tokenizer == SINGLE_PASS and budget < 0.25):
                yield _Setting("windowed", "tokenizer", tokenizer, budget, layouts["windowed"])
    for layout, config in layouts.items():
        for option, choices in _OPTIONS.items():
            if option == "padding" and config.window is None:
                continue
            for choice in choices:
                for budget in _OPTION_BUDGETS:
                    yield _Setting(layout, option, str(choice), budget, replace(config, **{option: choice}))


def _similarities(job: ImageJob, settings: Sequence[_Setting], weights: Path) -> Iterator[tuple[float, float]]:
    """Yield the similarity on objects and elsewhere in one image per setting; all settings share one layout."""
    canvas = Tokenizer(budget=1.0, canvas=job.canvas).to_canvas(job.path)
    under_boxes = object_cells(canvas, job.boxes)
    encoders: dict[EncoderConfig, Encoder] = {}
    dense = None
    known: dict[tuple[EncoderConfig, Tokenizer], tuple[float, float]] = {}
    for setting in settings:
        if setting.config not in encoders:
            encoders[setting.config] = Encoder(replace(setting.config, fusion=())).eval()
            load_weights(encoders[setting.config], weights, "timm")
        encoder, name = encoders[setting.config], setting.choice if setting.compared == "tokenizer" else GATED
        tokenizer = Tokenizer(budget=setting.budget, canvas=job.canvas, **SETTINGS[name])
        if dense is None:
            dense = run_dense(encoder, canvas, tokenizer)
        if (setting.config, tokenizer) not in known:
            similarity = cell_similarity(run_packed(encoder, canvas, tokenizer), dense)
            on_objects = float(similarity[under_boxes].mean()) if under_boxes.any() else float("nan")
            known[setting.config, tokenizer] = (on_objects, float(similarity[~under_boxes].mean()))
        yield known[setting.config, tokenizer]


def object_cells(canvas: Canvas, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which (rows, columns) cells any of the (N, 4) boxes in image pixels touches."""
    touched = np.zeros((canvas.extent.rows(CELL), canvas.extent.columns(CELL)), dtype=np.bool_)
    for x0, y0, x1, y1 in canvas.from_source(boxes) / CELL:
        touched[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = True
    return touched


def _ordering(rows: list[Row], budget: float) -> str:
    chosen = [row for row in rows if row["compared"] == "tokenizer" and row["budget"] == budget]
    ordered = sorted(chosen, key=lambda row: float(row["on_objects"]))
    return f"on objects at {budget:.0%}: " + " < ".join(f"{row['choice']} {row['on_objects']:.4f}" for row in ordered)


def _best(rows: list[Row], layout: str, option: str) -> str:
    """Rank the choices of an option in one layout by similarity on objects, mean over budgets."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if (row["layout"], row["compared"]) == (layout, option):
            values.setdefault(row["choice"], []).append(row["on_objects"])
    ranked = sorted(((float(np.mean(group)), choice) for choice, group in values.items()), reverse=True)
    return f"{layout}, {option}: " + (" > ".join(f"{choice} {value:.4f}" for value, choice in ranked) or "no windows")


STUDIES = (
    Study("compute", "Table 3: FLOPs, ms and GB at each budget", compute),
    Study("fidelity", "Packed features against dense ones", fidelity, ("data", "limit", "model"), keeps=False),
)
