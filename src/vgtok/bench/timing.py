"""Times of several functions measured in turn, so that a noisy moment falls on all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


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


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a picklable function in a fresh process, so that its memory traffic leaves no trace in this one's times."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _measured(prepare: Callable[[], Any], run: Callable[[Any], Any]) -> float:
    prepared = prepare()
    before = _resident_kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run(prepared)
    return (_resident_kilobytes("VmHWM") - before) / 1024


def _resident_kilobytes(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])
