"""What a run reports: a line of JSON per entry, TensorBoard where it is installed, a bar or plain lines for people."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vgtok.errors import InputError
from vgtok.files import write_text
from vgtok.journal import is_number, parsed

METRICS = "metrics.jsonl"
_LINE_EVERY = 30.0
"""Seconds between lines where nobody watches a bar."""


class Journal:
    """The reports of one run from `step` on; what an interrupted run reported after that is forgotten."""

    def __init__(self, run: Path, step: int, steps: int) -> None:
        self.path, self.steps = run / METRICS, steps
        entries = [entry for entry in read_metrics(run) if entry["step"] <= step]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in entries))
        self.file = self.path.open("ab")
        self.board = _board(run, step)
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("loss {task.fields[loss]:.2f}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=steps, completed=step, loss=float("nan"))
        self.spoke = 0.0

    def __enter__(self) -> "Journal":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        # On a full disk it would fail once more to write what it has said it could not.
        with suppress(OSError):
            self.file.close()
        if self.board is not None:
            self.board.close()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add an entry, which has a `step`, to the file and its numbers to TensorBoard."""
        try:
            self.file.write(json.dumps(entry).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        if self.board is not None:
            for name, value in entry.items():
                if name != "step" and isinstance(value, int | float):
                    self.board.add_scalar(name, value, entry["step"])

    def advance(self, step: int, loss: float) -> None:
        """Show how far the run is."""
        self.bar.update(self.task, completed=step, loss=loss)
        if self.console.is_terminal or time.monotonic() - self.spoke < _LINE_EVERY:
            return
        self.spoke = time.monotonic()
        self.say(f"step {step} of {self.steps}, loss {loss:.2f}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take the bar away while something else shows one."""
        self.bar.stop()
        yield
        self.bar.start()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, highlight=False, markup=False)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The entries of a run's metrics file, oldest first; a damaged line costs its entry alone."""
    path = run / METRICS
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    return [entry for line in lines if (entry := parsed(line)) is not None and _is_report(entry)]


def _is_report(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is numbers, among them those that are read from every report, or from that of a step."""
    needed = {"step", "lessons", "seconds"} if "loss" in entry else {"step"}
    return needed <= entry.keys() and all(is_number(value) for value in entry.values())


def _board(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)
