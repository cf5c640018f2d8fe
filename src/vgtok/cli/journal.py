"""The finished frames of a video as a file of JSON lines: a run that was stopped starts again at the next frame.

The first line says what the rest was made with, every other one is a frame. What follows a line that was cut short by
a kill or is damaged is dropped.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vgtok.cli.detections import is_record
from vgtok.errors import InputError
from vgtok.files import write_text
from vgtok.journal import parsed

LOG_SUFFIX = ".frames.jsonl"
"""How the file of a video's finished frames ends."""


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
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note that the frame after the last one is finished."""
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps({"frame": self.count, **entry}).encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from None
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


def logged_frames(folder: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every frame of every video a folder holds the log of, where it was made with these settings."""
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        header = _header(path)
        if header is not None and header.get("settings") == settings:
            yield from _frames(path)


def _frames(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            file.readline()
            for entry, _ in _numbered(file):
                yield entry
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each frame and the bytes its line takes, up to the first line that is not whole or not the next frame's."""
    for number, line in enumerate(lines):
        entry = parsed(line) if line.endswith(b"\n") else None
        if entry is None or entry.get("frame") != number or not is_record(entry):
            return
        yield entry, len(line)


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
            return parsed(line) if line.endswith(b"\n") else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
