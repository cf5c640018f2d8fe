"""Map a function over many items in several processes, with one progress bar and results in order.

Each worker runs OpenCV on one thread: the processes use the cores.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Protocol, TypeVar

import cv2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vgtok.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mapper(Protocol):
    """Yields `function(item)` for every item, in order, with a progress bar: here, or on a cluster."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item], *, label: str) -> Iterator[Result]:
        """Map a picklable function over picklable items."""


def map_with_progress(
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int, label: str
) -> Iterator[Result]:
    """Yield `function(item)` for every item, in order, with a progress bar on standard error.

    With more than one worker `function` and the items must be picklable: a module-level function, a frozen dataclass.
    """
    if workers < 1:
        raise InputError(f"workers: {workers} is not a number of processes, 1 or more")
    with progress_bar() as progress:
        task = progress.add_task(label, total=len(items))
        if workers == 1:
            for item in items:
                yield function(item)
                progress.advance(task)
            return
        # Spawned, not forked: a fork would copy OpenCV's thread pool in an undefined state.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
            for result in pool.map(function, items, chunksize=max(1, min(8, len(items) // (4 * workers)))):
                yield result
                progress.advance(task)


def progress_bar() -> Progress:
    """Return the progress bar of all commands, on standard error to keep standard output machine-readable."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_worker() -> None:
    cv2.setNumThreads(1)
    # Ctrl-C reaches every process of a terminal; the parent alone says what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
