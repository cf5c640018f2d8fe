"""What the benchmarks share: a frame to run on, times of several functions taken in turn, and peak memory.

Functions enter, milliseconds and megabytes leave. Taking turns spreads noise of the machine over all of them alike.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

KIBIBYTE, MEGABYTE = 1024, 1_000_000
"""The unit the system counts memory in, and the unit every benchmark prints."""

SEED = 7
"""The seed of rendered frames."""


@dataclass(frozen=True)
class Cost:
    """The figures of one benchmark."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in JSON."""
        return asdict(self)


def frame_pixels(image: Path | None) -> Any:
    """Return the (H, W, 3) pixels of an image, of a rendered 2048 x 1152 scene by default."""
    # Imported here: what a process of its own does not need would count as its memory.
    from vgtok.data.synthetic import render_scene
    from vgtok.tokenize.canvas import read_image

    return render_scene(SEED, 2048, 1152).pixels if image is None else read_image(image)


def best_laps(run: Callable[[Callable[[], None]], None], rounds: int, warm_up: int = 0) -> list[float]:
    """Return the best seconds of each part of `run`, which calls its argument after every part.

    The first `warm_up` rounds do not count.
    """
    times = []
    for _ in range(warm_up + rounds):
        marks = [time.perf_counter()]
        run(lambda marks=marks: marks.append(time.perf_counter()))  # type: ignore[misc]
        times.append([after - before for before, after in pairwise(marks)])
    return [min(parts) for parts in zip(*times[warm_up:], strict=True)]


def seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds and processor seconds of a call."""
    start, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - processor


def interleaved_medians(functions: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each function over `repeats` rounds, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if round_number:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_extra_megabytes(prepare: Callable[[], Any], run: Callable[[Any], Any]) -> float | None:
    """Return the resident memory `run(prepare())` needs on top of what `prepare` left, in its own process.

    Both must be picklable. Return None if the system cannot tell: only Linux has a high-water mark to reset.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    return in_own_process(_measured, prepare, run)


def process_peak_megabytes() -> float:
    """Return the peak resident memory of this process."""
    if sys.platform == "linux":
        # Not ru_maxrss: it starts from the peak of the process that started this one.
        return _resident_bytes("VmHWM") / MEGABYTE
    # Imported here: Windows has no such module, and other benchmarks do not need it.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, other systems in kibibytes.
    return peak * (1 if sys.platform == "darwin" else KIBIBYTE) / MEGABYTE


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a picklable function in a fresh process, so that it does not affect times and memory of this one."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _measured(prepare: Callable[[], Any], run: Callable[[Any], Any]) -> float:
    prepared = prepare()
    before = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    run(prepared)
    return (_resident_bytes("VmHWM") - before) / MEGABYTE


def _resident_bytes(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * KIBIBYTE
