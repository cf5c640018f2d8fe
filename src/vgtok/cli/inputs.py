"""Arguments to files: names, folders, globs and cameras of `vgtok tokenize` and `vgtok detect`.

What cannot be found is reported per argument; what a folder holds besides is counted by kind.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path

from vgtok.errors import InputError, VGTokError
from vgtok.files import check_local, is_there

FOLDERS = "folders"
"""What folders inside folders are counted as."""


@dataclass(frozen=True)
class Found:
    """The files of a command, each once; numbers of `cameras`; what its folders hold besides, counted by kind."""

    files: list[Path] = field(default_factory=list)
    cameras: list[int] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)


def find_inputs(
    arguments: Sequence[str],
    suffixes: AbstractSet[str],
    fail: Callable[[str, str], None],
    *,
    recursive: bool,
    cameras: bool = False,
) -> Found:
    """Return what the arguments stand for: in a folder, files with one of the suffixes, sorted.

    Report an argument that stands for nothing to `fail`, with the reason.
    """
    found = Found()
    for argument in arguments:
        if cameras and argument.isdecimal() and not is_there(Path(argument)):
            found.cameras.append(int(argument))
            continue
        try:
            files = _files(argument, suffixes, found.passed_over, recursive=recursive)
        except VGTokError as error:
            fail(argument, str(error))
        except OSError as error:
            fail(argument, f"{argument}: cannot be read ({error.strerror or error})")
        else:
            known = set(found.files)
            found.files.extend(path for path in files if path not in known)
    return found


def passed_over_text(passed_over: Mapping[str, int]) -> str:
    """Return a sentence on what folders hold besides, or '' if there is nothing."""
    if not passed_over:
        return ""
    listed = ", ".join(
        f"{number} {'folder' if (kind, number) == (FOLDERS, 1) else kind}"
        for kind, number in sorted(passed_over.items())
    )
    ways = ["--recursive reads folders inside folders"] if FOLDERS in passed_over else []
    if passed_over.keys() & {".heic", ".heif"}:
        ways.append("pip install 'vgtok[heif]' to read HEIC")
    return f"passed over: {listed}{''.join(f'; {way}' for way in ways)}"


def absolute_inputs(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as a run remembers them: equal for equal places, from whatever folder they are named."""
    # Unlike Path.resolve it also takes what is no name of a file.
    return [os.path.abspath(argument) for argument in arguments]  # noqa: PTH100


def _files(argument: str, suffixes: AbstractSet[str], passed_over: Counter[str], *, recursive: bool) -> list[Path]:
    check_local(argument)
    path = Path(argument)
    if is_there(path):
        return _inside(path, suffixes, passed_over, recursive=recursive) if path.is_dir() else [path]
    if not has_magic(argument):
        # A dangling link is reported when it is read.
        if path.is_symlink():
            return [path]
        raise InputError(f"{path}: no such file")
    matches = [Path(match) for match in sorted(glob(argument, recursive=True))]
    if not matches:
        raise InputError(f"{argument}: matches no file")
    # '**' also matches the folders whose files it matches.
    folders = [match for match in matches if match.is_dir()] if "**" not in argument else []
    files = [match for match in matches if not match.is_dir()]
    for folder in folders:
        files.extend(_inside(folder, suffixes, passed_over, recursive=recursive))
    return files


def _inside(folder: Path, suffixes: AbstractSet[str], passed_over: Counter[str], *, recursive: bool) -> list[Path]:
    """Return the files in a folder with one of the suffixes; count everything else but hidden files."""
    files, others = [], Counter[str]()
    for path in _listed(folder, recursive=recursive):
        if path.is_dir():
            others[FOLDERS] += 1
        elif path.suffix.lower() in suffixes:
            files.append(path)
        elif not path.name.startswith("."):
            others[path.suffix.lower() or "without suffix"] += 1
    if not files:
        what = passed_over_text(others).removeprefix("passed over: ") or "nothing"
        raise InputError(f"{folder}: holds none of {', '.join(sorted(suffixes))}, but {what}")
    passed_over.update(others)
    return files


def _listed(folder: Path, *, recursive: bool) -> Iterator[Path]:
    """Yield what is in a folder, sorted; with `recursive` the files of all folders below instead of these folders."""
    if not recursive:
        yield from sorted(folder.iterdir())
        return
    for place, folders, names in os.walk(folder):
        # In place: os.walk descends into what is left, in this order.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names))


def output_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for the results of each file: its stem, with a number if two files share it."""
    taken: set[str] = set()
    names = {}
    for path in paths:
        name, number = path.stem, 2
        while name in taken:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name)
        names[path] = name
    return names
