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
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Take note of SIGTERM and of the first Ctrl-C; a second Ctrl-C has its usual effect.

    Launchers of several processes send SIGTERM more than once.

    Signals reach the main thread alone, so a run in another thread is never stopped this way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, usual[signal.SIGINT])

    for number in usual:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
