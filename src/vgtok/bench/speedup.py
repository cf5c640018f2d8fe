"""How much faster a detector is at a budget: against its dense run in the same precision, and against plain modules.

One image runs in every way in turn, from pixels to boxes; what leaves are times, their ratios and memory.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from vgtok.bench.timing import SEED, Cost, frame_pixels, in_own_process, process_peak_megabytes, seconds
from vgtok.detect.detector import Detector
from vgtok.detect.loading import load
from vgtok.detect.sites import DEFAULT_RULE, SiteRule
from vgtok.encode.modes import default_threads, peak_megabytes
from vgtok.encode.plain import plain_modules
from vgtok.encode.precision import multiplies_bfloat16
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer

BUDGETS = (0.4, 0.2)
_MOST = 500
"""Detections kept, as in the protocol of VisDrone."""

_LARGE = (8192, 4608)
"""Width and height of the frame whose peak memory is measured."""


@dataclass(frozen=True)
class Way:
    """One way of running: `sparse` names the rule by which the head computes fewer positions, None computes all.

    `plain` runs the modules as they are trained, without any rewriting.
    """

    precision: str
    budget: float
    sparse: SiteRule | None = None
    plain: bool = False


@dataclass(frozen=True)
class SpeedupRow:
    """The best time of a way and the peak of the tensors it allocates; its ratios are to the dense and plain runs.

    Processor time adds up over threads; other programs on the machine change it less than they change `ms`.
    """

    precision: str
    budget: float
    sparse: SiteRule | None
    plain: bool
    ms: float
    processor_ms: float
    over_dense: float
    over_plain: float
    peak_mb: float


@dataclass(frozen=True)
class SpeedupCost(Cost):
    """All ways of one run.

    `large_peak_mb` is the peak of a process that detects in a frame of 8192 px read by windows, as a call does by
    default, `large_whole_peak_mb` that of one that reads it whole; None if they were not measured.
    """

    model: str
    head: str
    height: int
    width: int
    repeats: int
    threads: int
    rows: tuple[SpeedupRow, ...]
    large_peak_mb: float | None
    large_whole_peak_mb: float | None


def ways(budgets: tuple[float, ...], *, half: bool) -> list[Way]:
    """Return the ways to run: plain, then dense and at each budget by both rules, in each precision."""
    found = [Way("float32", 1.0, plain=True)]
    for precision in ("float32", "bfloat16") if half else ("float32",):
        found.append(Way(precision, 1.0))
        for budget in budgets:
            found += [Way(precision, budget, rule) for rule in (None, "roots", "tokens")]
    return found


def measure_speedup(
    model: str, image: Path | None, budgets: tuple[float, ...], repeats: int, *, large: bool
) -> SpeedupCost:
    """Run one image, by default a rendered one of 2048 x 1152, in every way; bfloat16 if the processor gains by it."""
    half = multiplies_bfloat16(torch.device("cpu"))
    detectors = {
        precision: load(model, device="cpu", dtype=precision)
        for precision in (("float32", "bfloat16") if half else ("float32",))
    }
    canvas = fit_canvas(frame_pixels(image), next(iter(detectors.values())).canvas)
    every = ways(budgets, half=half)
    runs = [partial(_run, detectors[way.precision], canvas, way) for way in every]
    # The first round warms up, the second is watched for memory; neither is timed.
    for run in runs:
        run()
    peaks = [peak_megabytes(run) for run in runs]
    rounds = [[seconds(run) for run in runs] for _ in range(repeats)]
    # The least of each way: wall time and processor time, each over all rounds
    least = [tuple(map(min, zip(*times, strict=True))) for times in zip(*rounds, strict=True)]
    times = {way: wall for way, (wall, _) in zip(every, least, strict=True)}
    rows = tuple(
        SpeedupRow(
            **vars(way),
            ms=1e3 * wall,
            processor_ms=1e3 * processor,
            over_dense=times[Way(way.precision, 1.0)] / wall,
            over_plain=times[every[0]] / wall,
            peak_mb=peak,
        )
        for way, (wall, processor), peak in zip(every, least, peaks, strict=True)
    )
    about = (model, detectors["float32"].head, canvas.height, canvas.width, repeats, default_threads())
    large_peaks = [
        in_own_process(large_frame_peak, model, budgets[0], whole) if large else None for whole in (False, True)
    ]
    return SpeedupCost(*about, rows, *large_peaks)


def large_frame_peak(model: str, budget: float, whole: bool) -> float:
    """Return the peak memory in MB of this process after one rendered frame of 8192 x 4608 px with the sparse head."""
    from vgtok.data.synthetic import render_scene

    # One scene of a quarter of the side, repeated: rendering is not what is measured.
    width, height = _LARGE
    pixels = np.tile(render_scene(SEED, width // 4, height // 4).pixels, (4, 4, 1))
    detector = load(model, device="cpu", dtype="float32")
    if whole:
        _run(detector, fit_canvas(pixels, "native"), Way("float32", budget, DEFAULT_RULE))
    else:
        detector(pixels, budget=budget, sparse_head=True)
    return process_peak_megabytes()


def _run(detector: Detector, canvas: Canvas, way: Way) -> None:
    """Partition a canvas and detect in it."""
    model = detector.model
    with detector.running(), plain_modules() if way.plain else nullcontext():
        tokens = [Tokenizer(way.budget, canvas=detector.canvas).partition(canvas)]
        maps = model.encoder([torch.from_numpy(canvas.image).permute(2, 0, 1)], tokens).maps
        sites = None if way.sparse is None else model.sites(maps, tokens, way.sparse)
        model.predict_maps(maps, [(canvas.height, canvas.width)], _MOST, detector.head, sites)
