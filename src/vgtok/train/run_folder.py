"""The folder of a run: its checkpoints, and the metrics of every step.

A checkpoint is a folder `step-000100` with the model, its moving average, the optimizer and the step. It is written
under another name and renamed when complete.
"""

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
"""Configuration of the model, beside the checkpoints and the recipe."""

_WEIGHTS, _EMA, _OPTIMIZER = "model.safetensors", "ema.safetensors", "optimizer.pt"
_OLD_FILES = {_EMA: "average.safetensors", _OPTIMIZER: "optimiser.pt"}
"""Files by the names they had up to version 0.1."""

_PATTERN = "step-[0-9][0-9][0-9][0-9][0-9][0-9]*"


@dataclass(frozen=True)
class Checkpoint:
    """A run after `step` steps: tensors by name, the state of the optimizer, seconds of training so far."""

    step: int
    seconds: float
    model: dict[str, Tensor]
    ema: dict[str, Tensor]
    optimizer: dict[str, Any]


def save_checkpoint(run: Path, checkpoint: Checkpoint, keep_every: int) -> Path:
    """Write a checkpoint; delete older ones except the one before it and every `keep_every` steps (0: none).

    Permanent checkpoints drop the optimizer state; they cannot be resumed.
    """
    folder = run / f"step-{checkpoint.step:06d}"
    draft = run / f".{folder.name}.draft"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, tensors in ((_WEIGHTS, checkpoint.model), (_EMA, checkpoint.ema)):
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, draft / name)
        torch.save(checkpoint.optimizer, draft / _OPTIMIZER)
        (draft / STATE_FILE).write_text(
            json.dumps({"step": checkpoint.step, "seconds": checkpoint.seconds}) + "\n", encoding="utf-8"
        )
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk each in their own way.
        shutil.rmtree(draft, ignore_errors=True)
        last = latest_checkpoint(run)
        left = f"the last checkpoint, {last}, is intact" if last else "there is no checkpoint yet"
        raise InputError(
            f"{folder}: cannot be written ({error}); {left}. Free some space and run the command again"
        ) from None
    for old in checkpoints(run)[:-2]:
        if keep_every and _step(old) % keep_every == 0:
            _file(old, _OPTIMIZER).unlink(missing_ok=True)
        else:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint; the optimizer state of a permanent one is empty."""
    optimizer = _file(folder, _OPTIMIZER)
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return Checkpoint(
            int(state["step"]),
            float(state["seconds"]),
            load_file(folder / _WEIGHTS),
            load_file(_file(folder, _EMA)),
            torch.load(optimizer, map_location="cpu", weights_only=True) if optimizer.is_file() else {},
        )
    except Exception as error:
        raise InputError(f"{folder}: damaged checkpoint ({error}); delete it to resume from the one before") from None


def load_ema(folder: Path) -> dict[str, Tensor]:
    """Read the averaged weights of a checkpoint."""
    return load_file(_file(folder, _EMA))


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first; folders with other names are skipped."""
    return sorted(filter(is_checkpoint, run.glob(_PATTERN)), key=_step)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder has the name of a checkpoint."""
    number = folder.name.removeprefix("step-")
    return number != folder.name and number.isdecimal() and number.isascii()


def latest_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint a run resumes from: the last one with an optimizer state."""
    resumable = [folder for folder in checkpoints(run) if _file(folder, _OPTIMIZER).is_file()]
    return resumable[-1] if resumable else None


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _file(folder: Path, name: str) -> Path:
    """Return a file of a checkpoint, by its old name where it has that."""
    old = folder / _OLD_FILES[name]
    return old if old.is_file() else folder / name


METRICS_FILE = "metrics.jsonl"
_OLD_METRICS = {"lessons": "samples", "norm": "grad_norm", "rate": "learning_rate"}
"""Metrics by the names they had up to version 0.1."""
_LINE_EVERY = 30.0
"""Seconds between progress lines when there is no terminal to draw a bar on."""


class RunLog:
    """Metrics and progress of one run from `step` on; entries of an interrupted run after `step` are dropped."""

    def __init__(self, run: Path, step: int, steps: int) -> None:
        self.path, self.steps = run / METRICS_FILE, steps
        entries = [entry for entry in read_metrics(run) if entry["step"] <= step]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in entries))
        self.file = self.path.open("ab")
        self.board = _tensorboard(run, step)
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
        self.last_line = 0.0

    def __enter__(self) -> "RunLog":
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
        """Append an entry, which must have a `step`, and send its numbers to TensorBoard."""
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
        """Update the progress bar, or print a line now and then where there is none."""
        self.bar.update(self.task, completed=step, loss=loss)
        if self.console.is_terminal or time.monotonic() - self.last_line < _LINE_EVERY:
            return
        self.last_line = time.monotonic()
        self.print(f"step {step} of {self.steps}, loss {loss:.2f}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while something else shows one."""
        self.bar.stop()
        yield
        self.bar.start()

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, highlight=False, markup=False)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the entries of a run's metrics file, oldest first; damaged lines are skipped."""
    path = run / METRICS_FILE
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    found = (
        {_OLD_METRICS.get(name, name): value for name, value in entry.items()}
        for line in lines
        if (entry := parsed(line)) is not None
    )
    return [entry for entry in found if _is_report(entry)]


def _is_report(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is all numbers and has those that every entry, or that of a step, must have."""
    needed = {"step", "samples", "seconds"} if "loss" in entry else {"step"}
    return needed <= entry.keys() and all(is_number(value) for value in entry.values())


def _tensorboard(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)
