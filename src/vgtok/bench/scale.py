"""What Ray costs and gains: frames per second of one and of two workers of one core, against the local engine.

All engines do the same work on the same rendered frames in one run, one after the other. Start-up of Ray and of the
workers is reported apart and does not count. `measure_stream` tokenizes many tiny frames from parquet files and watches
the memory of the driver.
"""

import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
from PIL import Image

from vgtok.bench.timing import MEGABYTE, SEED, Cost, in_own_process
from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_MODEL
from vgtok.scale.cluster import Engine, Worker, connected
from vgtok.scale.frames import Frame, Piece
from vgtok.scale.shards import Receipt, run_shards
from vgtok.scale.sources import find_frames
from vgtok.scale.tasks import DetectTask, Task, TokenizeTask
from vgtok.tokenize.tokenizer import Tokenizer

_SCENES = 20
_FRAME = (480, 270)
_DETECT_CANVAS = (512, 288)
"""A canvas on which the shipped model takes some tens of milliseconds, so that 500 frames take no hour."""

_WORKER = Worker(memory=10**9)
_TINY = 64
_FILES = 10


@dataclass(frozen=True)
class VerbCost(Cost):
    """Frames per second of one verb by engine, and their ratios; shards take `shard_kb_per_frame` on disk."""

    verb: str
    local_fps: float
    one_worker_fps: float
    two_workers_fps: float
    two_over_one: float
    overhead: float
    worker_startup_s: float
    shard_kb_per_frame: float


@dataclass(frozen=True)
class ScaleCost(Cost):
    """A row of costs per verb; `ray_startup_s` is the time until Ray is up, that of workers comes on top."""

    frames: int
    repeats: int
    ray_startup_s: float
    rows: tuple[VerbCost, ...]


def measure_scale(frames: int, repeats: int) -> ScaleCost:
    """Run tokenize and detect over rendered frames by the local engine, one worker and two workers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _render(folder / "frames", frames)
        pieces = find_frames(folder / "frames")
        tasks: dict[str, Task] = {
            "tokenize": TokenizeTask(Tokenizer(budget=DEFAULT_BUDGET)),
            "detect": DetectTask(_small_canvas_model(folder / "model"), DEFAULT_BUDGET),
        }
        started = time.perf_counter()
        with connected(Engine(workers=2, worker=_WORKER)):
            up = time.perf_counter() - started
            verbs = tuple(_measured(verb, task, pieces, folder / verb, repeats) for verb, task in tasks.items())
    return ScaleCost(frames, repeats, up, verbs)


def _measured(verb: str, task: Task, pieces: Sequence[Piece], folder: Path, repeats: int) -> VerbCost:
    rates: dict[int, list[float]] = {0: [], 1: [], 2: []}
    startups = []
    for number in range(repeats):
        rates[0].append(in_own_process(_local_rate, task, pieces, folder / f"{number}.jsonl"))
        for workers in (1, 2):
            receipts: list[Receipt] = []
            place = str(folder / f"{number}-{workers}")
            run = run_shards(task, pieces, place, Engine(workers=workers, worker=_WORKER), tell=receipts.append)
            rates[workers].append(steady_rate(receipts))
            startups.append(run.startup_s)
    size = sum(path.stat().st_size for path in (folder / "0-1").glob("*.parquet"))
    local, one, two = (statistics.median(rates[workers]) for workers in (0, 1, 2))
    return VerbCost(
        verb, local, one, two, two / one, local / one - 1, statistics.median(startups), size / 1e3 / len(pieces)
    )


def steady_rate(receipts: Sequence[Receipt]) -> float:
    """Return the frames per second of all workers together, from when the last of them has begun."""
    began = max(
        min(one.began for one in receipts if one.worker == worker) for worker in {one.worker for one in receipts}
    )
    counted = [one for one in receipts if one.began >= began]
    return sum(one.frames for one in counted) / (max(one.ended for one in counted) - began)


def _local_rate(task: Task, pieces: Sequence[Frame], log: Path) -> float:
    """Return the frames per second of the local engine at one thread: each frame in turn, and a line of a log."""
    import cv2

    cv2.setNumThreads(1)
    work = task.prepare(_WORKER)
    work(pieces[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    for frame in pieces:
        row = work(frame)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"item": frame.item, "tokens": row["tokens"]}) + "\n")
    return len(pieces) / (time.perf_counter() - started)


def _render(folder: Path, frames: int) -> None:
    from vgtok.data.synthetic import render_scene

    folder.mkdir()
    scenes = [_encoded(render_scene(SEED + number, *_FRAME).pixels) for number in range(min(_SCENES, frames))]
    for number in range(frames):
        (folder / f"{number:06d}.jpg").write_bytes(scenes[number % len(scenes)])


def _encoded(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def _small_canvas_model(folder: Path) -> str:
    """Save the shipped model for a small canvas, and return its folder."""
    from vgtok.detect.loading import find_detector
    from vgtok.detect.saving import save_detector

    detector = find_detector(DEFAULT_MODEL)
    detector.canvas = _DETECT_CANVAS
    save_detector(detector, folder)
    return str(folder)


@dataclass(frozen=True)
class StreamCost(Cost):
    """A run over many tiny frames in parquet files: the driver's memory after each tenth of them, and rates."""

    frames: int
    workers: int
    seconds: float
    frames_per_second: float
    driver_mb: tuple[float, ...]
    driver_growth_mb: float
    input_mb: float
    output_mb: float


def measure_stream(frames: int, workers: int) -> StreamCost:
    """Tokenize tiny rendered frames from parquet files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_tiny(folder / "frames", frames)
        pieces = find_frames(folder / "frames")
        memory: list[float] = []
        done = 0

        def tell(receipt: Receipt) -> None:
            nonlocal done
            done += receipt.frames
            while len(memory) < 10 * done // frames:
                memory.append(_resident_mb())

        task = TokenizeTask(Tokenizer(budget=DEFAULT_BUDGET, canvas="native"))
        engine = Engine(workers=workers, worker=_WORKER)
        run = run_shards(task, pieces, str(folder / "out"), engine, tell=tell)
        sizes = [sum(path.stat().st_size for path in (folder / part).glob("*.parquet")) for part in ("frames", "out")]
    return StreamCost(
        run.frames - run.failed,
        workers,
        run.seconds,
        run.frames_per_second,
        tuple(memory),
        max(memory) - memory[0],
        sizes[0] / MEGABYTE,
        sizes[1] / MEGABYTE,
    )


def _write_tiny(folder: Path, frames: int) -> None:
    """Write frames of 64 px as parquet files: crops of one rendered scene, every one another."""
    folder.mkdir()
    per_file = -(-frames // _FILES)
    crops = _crops()
    for first in range(0, frames, per_file):
        images = [next(crops) for _ in range(min(per_file, frames - first))]
        parquet.write_table(pyarrow.table({"image": images}), folder / f"{first:08d}.parquet", row_group_size=1024)


def _crops() -> Iterator[bytes]:
    from vgtok.data.synthetic import render_scene

    pixels = render_scene(SEED, 2048, 1152).pixels
    generator = np.random.default_rng(SEED)
    while True:
        y, x = (int(generator.integers(0, side - _TINY)) for side in pixels.shape[:2])
        yield _encoded(pixels[y : y + _TINY, x : x + _TINY])


def _resident_mb() -> float:
    """Return the memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
