"""Arguments that stand for files: themselves, a folder's, or what a glob matches; and a name for each result."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from glob import glob, has_magic
from pathlib import Path

from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.errors import InputError


def expanded(argument: str, suffixes: AbstractSet[str] = IMAGE_SUFFIXES) -> list[Path]:
    """The files an argument stands for, sorted; of a folder those with one of the suffixes."""
    try:
        return _expanded(argument, suffixes)
    except OSError as error:
        raise InputError(f"{argument}: cannot be read ({error.strerror or error})") from None


def _expanded(argument: str, suffixes: AbstractSet[str]) -> list[Path]:
    path = Path(argument)
    if path.is_dir():
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in suffixes)
        if not inside:
            raise InputError(f"{path}: holds none of {', '.join(sorted(suffixes))}")
        return inside
    if has_magic(argument) and not path.exists():
        matches = sorted(glob(argument, recursive=True))
        if not matches:
            raise InputError(f"{argument}: matches no file")
        return [Path(match) for match in matches]
    return [path]


def output_names(paths: Sequence[Path]) -> dict[Path, str]:
    """A name per file for its results: its stem, with a number where two files share one."""
    taken: set[str] = set()
    names = {}
    for path in paths:
        name, number = path.stem, 2
        while name in taken:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name)
        names[path] = name
    return names
