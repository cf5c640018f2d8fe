"""Stop a run between two steps when its process is asked to end, so that nothing learned is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether the process was asked to end."""

    asked: bool = False


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Take note of the first Ctrl-C or SIGTERM; a second one has its usual effect.

    Signals reach the main thread alone, so a run in another thread is never stopped this way.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.asked = True
        restore()

    for number in usual:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
