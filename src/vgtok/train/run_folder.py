"""What a run's folder holds: checkpoints, and metrics of every step."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vgtok.errors import InputError
from vgtok.files import write_text
from vgtok.journal import is_number, parsed
from vgtok.train.recipe import STATE_FILE

MODEL_FILE = "model.json"
"""What a run writes beside its checkpoints and its recipe: the configuration of its model."""

_PATTERN = "step-[0-9][0-9][0-9][0-9][0-9][0-9]*"


@dataclass(frozen=True)
class State:
    """Where a run stands after `step` steps: tensors by name, the optimiser's state, seconds of training so far."""

    step: int
    seconds: float
    model: dict[str, Tensor]
    average: dict[str, Tensor]
    optimiser: dict[str, Any]


def save_state(run: Path, state: State, kept_every: int) -> Path:
    """Write a checkpoint and drop older ones, but for the one before it and every `kept_every` steps (0: none).

    Those kept for good lose their optimiser's state: nothing goes on from them.
    """
    folder = run / f"step-{state.step:06d}"
    draft = run / f".{folder.name}.draft"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_file({name: tensor.contiguous() for name, tensor in state.model.items()}, draft / "model.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in state.average.items()}, draft / "average.safetensors")
        torch.save(state.optimiser, draft / "optimiser.pt")
        (draft / STATE_FILE).write_text(
            json.dumps({"step": state.step, "seconds": state.seconds}) + "\n", encoding="utf-8"
        )
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk each in their own way.
        shutil.rmtree(draft, ignore_errors=True)
        last = newest(run)
        left = f"the last checkpoint, {last}, is intact" if last else "there is no checkpoint yet"
        raise InputError(
            f"{folder}: cannot be written ({error}); {left}. Make room and run the command again"
        ) from None
    for old in checkpoints(run)[:-2]:
        if kept_every and _step(old) % kept_every == 0:
            (old / "optimiser.pt").unlink(missing_ok=True)
        else:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def load_state(folder: Path) -> State:
    """Read a checkpoint; one kept for good has an empty optimizer state."""
    optimiser = folder / "optimiser.pt"
    try:
        about = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return State(
            int(about["step"]),
            float(about["seconds"]),
            load_file(folder / "model.safetensors"),
            load_file(folder / "average.safetensors"),
            torch.load(optimiser, map_location="cpu", weights_only=True) if optimiser.is_file() else {},
        )
    except Exception as error:
        raise InputError(f"{folder}: damaged checkpoint ({error}); delete it to go on from the one before") from None


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; a copy by another name is none."""
    return sorted(filter(is_checkpoint, run.glob(_PATTERN)), key=_step)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder has the name of a checkpoint."""
    number = folder.name.removeprefix("step-")
    return number != folder.name and number.isdecimal() and number.isascii()


def newest(run: Path) -> Path | None:
    """The checkpoint a run goes on from: the last that still has its optimiser's state."""
    whole = [folder for folder in checkpoints(run) if (folder / "optimiser.pt").is_file()]
    return whole[-1] if whole else None


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


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
