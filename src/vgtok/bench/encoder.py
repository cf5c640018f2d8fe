"""What an encoder costs dense, packed at several budgets, and as the paper's scatter control, on the same frames.

Executions take turns, so that a noisy moment falls on all alike; a row's time is its best round on each frame, the
mean over frames, tokenizing included wherever there are tokens to choose. Weights are random: cost does not depend
on them.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vgtok.bench.timing import process_peak_megabytes
from vgtok.encode.dense import RUN_MODES
from vgtok.encode.encoder import build_encoder
from vgtok.encode.flops import default_threads, encoder_flops, peak_megabytes
from vgtok.parallel import progress_bar
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.images import read_image
from vgtok.tokenize.tokenizer import Tokenizer

BUDGETS = (0.80, 0.70, 0.60, 0.40, 0.20)
CONTROL_BUDGET = 0.70
"""Where the paper runs its control."""


@dataclass(frozen=True)
class EncoderRow:
    """One execution at one budget: means over the frames.

    `speedup` is dense time over this row's, `realised` that speed-up over the ratio of counted FLOPs; both None when
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
class EncoderCost:
    """All rows of one run and what it ran on."""

    config: str
    frames: Sequence[str]
    repeats: int
    threads: int
    process_peak_mb: float
    rows: Sequence[EncoderRow]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)


def measure_encoder(
    config: str, images: Sequence[Path], budgets: Sequence[float], repeats: int, *, packed_only: bool
) -> EncoderCost:
    """Time and count an encoder on 2048 x 1152 frames, rendered ones where no images are given."""
    encoder = build_encoder(config).eval()
    canvases = [fit_canvas(read_image(image)) for image in images] or [_rendered()]
    settings = [("packed", budget) for budget in budgets]
    if not packed_only:
        settings = [("dense", 1.0), *settings, ("control", CONTROL_BUDGET)]
    times: dict[tuple[str, float], list[float]] = {setting: [] for setting in settings}
    counts: dict[tuple[str, float], list[tuple[int, int, float]]] = {setting: [] for setting in settings}
    with progress_bar() as progress:
        task = progress.add_task(f"bench {config}", total=len(canvases) * len(settings) * (repeats + 1))
        for canvas in canvases:
            best = dict.fromkeys(settings, np.inf)
            # The first round is not timed: it warms up and is watched for memory.
            for round_number in range(repeats + 1):
                for execution, budget in settings:
                    tokenizer = Tokenizer(budget=budget)
                    run = partial(RUN_MODES[execution], encoder, canvas, tokenizer)
                    if round_number == 0:
                        tokens = tokenizer.partition(canvas)
                        flops = sum(encoder_flops(execution, encoder.config, tokens))
                        counts[execution, budget].append((len(tokens), flops, peak_megabytes(run)))
                    else:
                        best[execution, budget] = min(best[execution, budget], _milliseconds(run))
                    progress.advance(task)
            for setting, milliseconds in best.items():
                times[setting].append(milliseconds)
    rows = [_row(setting, times[setting], counts[setting]) for setting in settings]
    peak = process_peak_megabytes()
    names = tuple(image.name for image in images) or ("rendered",)
    return EncoderCost(config, names, repeats, default_threads(), peak, [compared(row, rows[0]) for row in rows])


def _milliseconds(run: partial[Any]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _row(setting: tuple[str, float], times: list[float], counts: list[tuple[int, int, float]]) -> EncoderRow:
    tokens, flops, peak = np.mean(counts, axis=0).tolist()
    return EncoderRow(*setting, tokens, flops / 1e9, float(np.mean(times)), peak)


def compared(row: EncoderRow, dense: EncoderRow) -> EncoderRow:
    """The row with its ratios to dense; as it was, where the other row is not the dense one."""
    if dense.execution != "dense":
        return row
    speedup = dense.ms / row.ms
    return replace(row, speedup=speedup, realised=speedup / (dense.gflops / row.gflops))


def _rendered() -> Canvas:
    from vgtok.data.synthetic import render_scene

    return fit_canvas(render_scene(seed=7).pixels)
