"""Checkpoints of a run: folders that appear whole or not at all, the newest of which a run goes on from.

`step-000100/` holds model.safetensors, average.safetensors, optimiser.pt and state.json. It is written under another
name and renamed when complete, so whatever has the name can be trusted.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vgtok.errors import InputError
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
