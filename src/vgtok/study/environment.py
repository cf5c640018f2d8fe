"""What this machine has: data sets and weights that environment variables name, each opened before it counts as there.

VGTOK_VISDRONE and VGTOK_AITODV2 name folders of data, VGTOK_WEIGHTS a folder of starting checkpoints.
"""

import os
from functools import cache
from pathlib import Path

from vgtok.data.dataset import Dataset, open_dataset
from vgtok.errors import InputError

DATA = ("visdrone", "aitodv2")


def variable(name: str) -> str:
    """The environment variable that names the folder of a data set."""
    return f"VGTOK_{name.upper()}"


def named_dataset(data: str | None, kinds: tuple[str, ...]) -> Dataset | None:
    """The data set `--data` asks for; without it the first of `kinds` the environment names, None where it names none.

    A bare 'visdrone' or 'aitodv2' is the one the environment names.
    """
    if data is None:
        present = next((kind for kind in kinds if os.environ.get(variable(kind))), None)
        return None if present is None else _from_environment(present)
    if data in DATA and not Path(data).exists():
        return _from_environment(data)
    return open_dataset(data)


@cache
def data_problem(name: str) -> str | None:
    """Why the data set cannot be read by name alone, None where it can."""
    try:
        _from_environment(name)
    except InputError as error:
        return str(error)
    return None


def weights_problem(name: str) -> str | None:
    """Why the checkpoint file of that name cannot be read, None where it can."""
    try:
        weights_file(name)
    except InputError as error:
        return str(error)
    return None


def weights_file(name: str) -> Path:
    """A checkpoint file in the folder VGTOK_WEIGHTS names."""
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not folder:
        raise InputError(f"VGTOK_WEIGHTS: names no folder; set it to one that holds {name}")
    path = Path(folder) / name
    if not path.is_file():
        raise InputError(f"VGTOK_WEIGHTS: {folder} does not hold {name}")
    return path


def _from_environment(name: str) -> Dataset:
    folder = os.environ.get(variable(name))
    if not folder:
        raise InputError(f"--data: '{name}' has no folder; write {name}:DIR or set {variable(name)}")
    try:
        return open_dataset(f"{name}:{folder}")
    except InputError as error:
        raise InputError(f"{variable(name)}: {error}") from None
