"""The numbered folders that commands write to by default: `vgtok-runs/detect`, `vgtok-runs/detect-2`, ...

A command and its settings go in, its folder comes out: the one an equal command used before, to resume or reuse what is
there, or else the next free number. So other settings never overwrite results, and unrelated runs never mix.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from vgtok.errors import InputError
from vgtok.files import read_json

RUNS = Path("vgtok-runs")
"""Folder of all runs, in the folder a command is started in."""

RUN_FILE = "vgtok-run.json"
"""File in the folder of a run that says which command it belongs to."""


def run_folder(verb: str, inputs: Sequence[str], settings: Mapping[str, Any], runs: Path = RUNS) -> Path:
    """Return the folder of a command, `runs/verb` or `runs/verb-2`, ...; create it if no equal command has one.

    Commands are equal if they have the same `inputs`, of which paths should be absolute, and the same `settings`.
    """
    # As they come back from the file: tuples are lists there.
    command = json.loads(json.dumps({"verb": verb, "inputs": list(inputs), "settings": dict(settings)}))
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for folder in _numbered(runs / verb):
            if not folder.exists() and _created(folder, command):
                return folder
            # Also after another process was faster to create it.
            if _command(folder) == command:
                return folder
    except OSError as error:
        raise InputError(f"{runs}: cannot be written ({error.strerror or error}); choose another --out") from None
    raise AssertionError("the numbers do not end")


def _numbered(first: Path) -> Iterator[Path]:
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def _created(folder: Path, command: Mapping[str, Any]) -> bool:
    """Create the folder with its file at once, so that no other process sees it without; False if it exists."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
        draft = Path(place) / folder.name
        draft.mkdir()
        (draft / RUN_FILE).write_text(json.dumps(command, indent=1) + "\n", encoding="utf-8")
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            return False
        return True


def _command(folder: Path) -> Any:
    """Return what the folder belongs to; None for a folder of something else."""
    try:
        return read_json(folder / RUN_FILE)
    except InputError:
        return None
