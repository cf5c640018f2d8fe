"""What a model costs on this machine: an encoder, a detector from pixels to boxes, and a training step.

Variants take turns in one run, so that noise of the machine affects all alike; what leaves are times and their ratios.
Weights are random: cost does not depend on them.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vgtok.bench.timing import SEED, Cost, best_laps, frame_pixels, process_peak_megabytes, seconds
from vgtok.data.synthetic import render_scene
from vgtok.detect.config import detector_configuration
from vgtok.detect.model import CoDetr
from vgtok.detect.training import LossKinds
from vgtok.encode.encoder import build_encoder
from vgtok.encode.modes import RUN_MODES, default_threads, encoder_flops, peak_megabytes
from vgtok.parallel import progress_bar
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.model import best_precision

BUDGETS = (0.80, 0.70, 0.60, 0.40, 0.20)
CONTROL_BUDGET = 0.70
"""The budget of the paper's control."""


@dataclass(frozen=True)
class EncoderRow:
    """One execution at one budget: means over the frames.

    `speedup` is the dense time over that of this row, `realised` the speed-up over the ratio of FLOPs; both are None if
    dense was not run.
    """

    execution: str
    budget: float
    tokens: float
    gflops: float
    ms: float
    peak_mb: float
    speedup: float | None = None
    realised: float | None = None


@dataclass(frozen=True)
class EncoderCost(Cost):
    """All rows of one run and what it ran on."""

    config: str
    frames: Sequence[str]
    repeats: int
    threads: int
    process_peak_mb: float
    rows: Sequence[EncoderRow]


def measure_encoder(
    config: str, images: Sequence[Path], budgets: Sequence[float], repeats: int, *, packed_only: bool
) -> EncoderCost:
    """Time and count an encoder on 2048 x 1152 frames, by default a rendered one.

    It runs dense, packed at each budget, and as the paper's scatter control. The time of a row is the mean over frames
    of its best round, tokenizing included for packed rows.
    """
    encoder = build_encoder(config).eval()
    canvases = [fit_canvas(frame_pixels(image)) for image in images or (None,)]
    settings = [("packed", budget) for budget in budgets]
    if not packed_only:
        settings = [("dense", 1.0), *settings, ("control", CONTROL_BUDGET)]
    times: dict[tuple[str, float], list[float]] = {setting: [] for setting in settings}
    counts: dict[tuple[str, float], list[tuple[int, int, float]]] = {setting: [] for setting in settings}
    with progress_bar() as progress:
        task = progress.add_task(f"bench {config}", total=len(canvases) * len(settings) * (repeats + 1))
        for canvas in canvases:
            best = dict.fromkeys(settings, np.inf)
            # The first round warms up and is watched for memory; it is not timed.
            for round_number in range(repeats + 1):
                for execution, budget in settings:
                    tokenizer = Tokenizer(budget=budget)
                    run = partial(RUN_MODES[execution], encoder, canvas, tokenizer)
                    if round_number == 0:
                        tokens = tokenizer.partition(canvas)
                        flops = sum(encoder_flops(execution, encoder.config, tokens))
                        counts[execution, budget].append((len(tokens), flops, peak_megabytes(run)))
                    else:
                        best[execution, budget] = min(best[execution, budget], 1e3 * seconds(run)[0])
                    progress.advance(task)
            for setting, milliseconds in best.items():
                times[setting].append(milliseconds)
    rows = [_row(setting, times[setting], counts[setting]) for setting in settings]
    peak = process_peak_megabytes()
    names = tuple(image.name for image in images) or ("rendered",)
    return EncoderCost(config, names, repeats, default_threads(), peak, [compared(row, rows[0]) for row in rows])


def _row(setting: tuple[str, float], times: list[float], counts: list[tuple[int, int, float]]) -> EncoderRow:
    tokens, flops, peak = np.mean(counts, axis=0).tolist()
    return EncoderRow(*setting, tokens, flops / 1e9, float(np.mean(times)), peak)


def compared(row: EncoderRow, dense: EncoderRow) -> EncoderRow:
    """Return the row with its ratios to dense, unchanged if the other row is not dense."""
    if dense.execution != "dense":
        return row
    speedup = dense.ms / row.ms
    return replace(row, speedup=speedup, realised=speedup / (dense.gflops / row.gflops))


@dataclass(frozen=True)
class DetectorCost(Cost):
    """Best seconds of one frame by stage, and the peak memory of the process."""

    config: str
    budget: float
    height: int
    width: int
    tokens: int
    threads: int
    tokenize_s: float
    encode_s: float
    detect_s: float
    process_peak_mb: float


def _setup(config: str, image: Path | None) -> tuple[CoDetr, Canvas, Tensor]:
    """Return a model, a canvas and its pixels as a (3, H, W) tensor."""
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(config)).eval()
    canvas = fit_canvas(frame_pixels(image))
    return model, canvas, torch.from_numpy(canvas.image.copy()).permute(2, 0, 1)


def measure_detector(config: str, image: Path | None, budget: float, repeats: int) -> DetectorCost:
    """Run one 2048 x 1152 frame, by default a rendered one, from pixels to boxes."""
    model, canvas, pixels = _setup(config, image)
    tokenizer, size = Tokenizer(budget=budget), [(canvas.height, canvas.width)]
    tokens = tokenizer.partition(canvas)

    def run(lap: Callable[[], None]) -> None:
        own = tokenizer.partition(canvas)
        lap()
        maps = model.encoder([pixels], [own]).maps
        lap()
        model.predict_maps(maps, size, 500)
        lap()

    with torch.inference_mode():
        best = best_laps(run, repeats)
    about = (config, budget, tokens.height, tokens.width, len(tokens), default_threads())
    return DetectorCost(*about, best[0], best[1], best[2], process_peak_megabytes())


_TOGETHER = 4
"""Crops that share a forward pass, as in the recipe of the shipped model."""

_LOSSES: dict[str, LossKinds] = {"all": "all", "atss": "auxiliary"}
"""The losses of a step: of every head, or of the ATSS head alone."""


@dataclass(frozen=True)
class StepRow:
    """One way of training: medians over the rounds, per crop.

    `ratio` is to the first row: fp32, all losses, one crop per pass. Processor time is what a crop would take on one
    idle core.
    """

    precision: Literal["fp32", "bf16"]
    losses: str
    crops_per_pass: int
    seconds_per_crop: float
    processor_seconds_per_crop: float
    ratio: float


@dataclass(frozen=True)
class StepCost(Cost):
    """Forward pass, backward pass and update on rendered crops of `side` px, in every way."""

    config: str
    budget: float
    side: int
    tokens: int
    objects: int
    threads: int
    rows: tuple[StepRow, ...]


def measure_step(config: str, side: int, budget: float, repeats: int) -> StepCost:
    """Train on one rendered crop of `side` px, alone and four together; the first round warms up.

    The model has the ATSS head beside the queries, as the recipe of the shipped model trains it.
    """
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(config, auxiliary=("atss",)))
    scene = render_scene(SEED, side, side)
    frame = torch.from_numpy(scene.pixels).permute(2, 0, 1).contiguous()
    tokens = Tokenizer(budget=budget, canvas="native")(scene.pixels)
    kept = scene.labels < model.config.classes
    target = {"boxes": torch.from_numpy(scene.boxes[kept]), "labels": torch.from_numpy(scene.labels[kept])}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16") if best_precision() == "bf16" else ("fp32",)
    ways = [(precision, losses, crops) for precision in precisions for losses in _LOSSES for crops in (1, _TOGETHER)]

    def step(precision: str, losses: str, crops: int) -> None:
        optimizer.zero_grad()
        half = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()
        with half:
            found = model.loss([frame] * crops, [tokens] * crops, [target] * crops, kinds=_LOSSES[losses])
        torch.autograd.backward(torch.stack([value.float() for value in found.values()]).sum())
        optimizer.step()

    rounds = [[seconds(partial(step, *way)) for way in ways] for _ in range(repeats + 1)][1:]
    rows: list[StepRow] = []
    for way, times in zip(ways, zip(*rounds, strict=True), strict=True):
        wall, processor = (median(values) / way[2] for values in zip(*times, strict=True))
        rows.append(StepRow(*way, wall, processor, wall / rows[0].seconds_per_crop if rows else 1.0))
    return StepCost(config, budget, side, len(tokens), int(kept.sum()), default_threads(), tuple(rows))
