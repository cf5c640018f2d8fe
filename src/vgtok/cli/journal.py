"""What a long run has finished, line by line: a run that was stopped starts again where it was.

The first line says what the rest was made with, every other one is a finished item. A line cut short by a kill is
dropped.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vgtok.errors import InputError
from vgtok.files import write_text

LOG_SUFFIX = ".frames.jsonl"
"""How the file of a video's finished frames ends."""


class Journal:
    """A JSON-lines file beside the results; `entries` holds what is finished, by item."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}
        lines = self._lines()
        if lines and lines[0] != settings:
            differing = sorted(
                key for key in settings.keys() | lines[0].keys() if settings.get(key) != lines[0].get(key)
            )
            raise InputError(
                f"{path.parent}: holds results of another run (it differs in {', '.join(differing)}); "
                "choose another --out or delete it"
            )
        for entry in lines[1:]:
            self.entries[str(entry["item"])] = entry
        kept = [dict(settings), *self.entries.values()]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def add(self, item: str, entry: Mapping[str, Any]) -> None:
        """Note that an item is finished."""
        self.entries[item] = {"item": item, **entry}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.entries[item]) + "\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror})") from None

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror})") from None
        lines = []
        for number, line in enumerate(text.splitlines()):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and (number == 0 or "item" in entry):
                lines.append(entry)
        return lines


class FrameLog:
    """The finished frames of one video as a JSON-lines file, numbered from 0 without a gap.

    Nothing of it is held: `count` is how many frames there are, iterating reads them from the file. Only the frame that
    comes next can be added, so none is ever there twice.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Go on with the file if its header is this one, or else start it anew."""
        self.path = path
        self.header: dict[str, Any] = json.loads(json.dumps(header))
        self.count, size = self._finished()
        try:
            if size:
                os.truncate(path, size)
            else:
                write_text(path, json.dumps(self.header) + "\n")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note that the frame after the last one is finished."""
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps({"frame": self.count, **entry}).encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror})") from None
        self.count += 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return _frames(self.path)

    def _finished(self) -> tuple[int, int]:
        """How many frames of this header the file holds, and the bytes of it that are whole; 0 if it is another's."""
        if _header(self.path) != self.header:
            return 0, 0
        count = 0
        with self.path.open("rb") as file:
            size = len(file.readline())
            for _, length in _numbered(file):
                count, size = count + 1, size + length
        return count, size


def stamp(path: Path) -> list[int]:
    """Size and time of a file: what changes when it does; nothing where there is none."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def logged_frames(folder: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every frame of every video a folder holds the log of, where it was made with these settings."""
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        header = _header(path)
        if header is not None and header.get("settings") == settings:
            yield from _frames(path)


def _frames(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        file.readline()
        for entry, _ in _numbered(file):
            yield entry


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each frame and the bytes its line takes, up to the first line that is not whole or not the next frame's."""
    for number, line in enumerate(lines):
        entry = _parsed(line)
        if entry is None or entry.get("frame") != number:
            return
        yield entry, len(line)


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            return _parsed(file.readline())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object a whole line holds; None for a line cut short or not written by this program."""
    try:
        entry = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
