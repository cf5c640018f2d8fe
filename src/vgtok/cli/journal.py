"""What a long run has finished, line by line: a run that was stopped starts again where it was.

The first line holds the settings of the run, every other one a finished item. A line cut short by a kill is dropped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgtok.errors import InputError
from vgtok.files import write_text


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
