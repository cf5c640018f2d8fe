"""What a long run has finished, line by line, so that a run that was stopped starts again where it was.

The first line says what the rest was made with, every other one is a finished item. A line that is damaged costs the
item it stood for, never the run.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from vgtok.errors import InputError
from vgtok.files import write_text

Check = Callable[[Mapping[str, Any]], bool]
"""Whether an entry holds everything that is read from it later."""


class Journal:
    """A JSON-lines file beside the results; `entries` holds what is finished, by item."""

    def __init__(self, path: Path, settings: Mapping[str, Any], is_whole: Check) -> None:
        """Go on with the file at `path` if it was made with the same settings; refuse it if it was not."""
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}
        # As they come back from the file: tuples are lists there.
        header: dict[str, Any] = json.loads(json.dumps(settings))
        lines = self._lines()
        # Without its header, cut short by a kill or damaged, nobody knows what the rest was made with.
        if lines and lines[0] is not None and "item" not in lines[0]:
            _check_settings(path, header, lines[0])
            for entry in lines[1:]:
                if entry is not None and isinstance(entry.get("item"), str) and is_whole(entry):
                    self.entries[entry["item"]] = entry
        self._rewrite(header)

    def add(self, item: str, entry: Mapping[str, Any]) -> None:
        """Note that an item is finished."""
        self.entries[item] = {"item": item, **entry}
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(self.entries[item]).encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from None

    def _rewrite(self, header: dict[str, Any]) -> None:
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in (header, *self.entries.values())))

    def _lines(self) -> list[dict[str, Any] | None]:
        try:
            return [parsed(line) for line in self.path.read_bytes().splitlines()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from None


def parsed(line: bytes) -> dict[str, Any] | None:
    """The object a line holds; None for one that is damaged or was not written by this program."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of an entry is a finite number that every computation can take."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _check_settings(path: Path, settings: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    differing = sorted(key for key in settings.keys() | found.keys() if settings.get(key) != found.get(key))
    if differing:
        raise InputError(
            f"{path}: left by a run over other images or settings (it differs in {', '.join(differing)}); choose "
            "another --out or delete it"
        )
