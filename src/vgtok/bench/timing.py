"""Times of several functions measured in turn, so that a noisy moment falls on all of them alike; and peak memory."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

KIBIBYTE, MEGABYTE = 1024, 1_000_000
"""What the system counts memory in, and what every benchmark prints it in."""


def interleaved_medians(functions: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median milliseconds of each function over `repeats` rounds, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if round_number:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_extra_megabytes(prepare: Callable[[], Any], run: Callable[[Any], Any]) -> float | None:
    """Resident memory `run(prepare())` needs on top of what `prepare` left, in a process of its own.

    Both must be picklable. None where the system does not tell (only Linux keeps a resettable high-water mark).
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    return in_own_process(_measured, prepare, run)


def process_peak_megabytes() -> float:
    """The most resident memory this process ever had."""
    # Here, not above: Windows has no such module, and other benchmarks need none of it.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, everybody else in kibibytes.
    return peak * (1 if sys.platform == "darwin" else KIBIBYTE) / MEGABYTE


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a picklable function in a fresh process, so that its memory traffic leaves no trace in this one's times."""
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
