"""A resumable log: a JSON-lines file of finished items under a header with the settings they were made with.

Opening a journal again returns what is finished, so that an interrupted run resumes. A damaged line costs its own
item, never the run. Entries stay in the file; only their positions are held in memory.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeGuard

from vgtok.errors import InputError
from vgtok.files import is_there, replacing

Entry = dict[str, Any]
"""What one line holds; `item` names what is finished."""

Check = Callable[[Mapping[str, Any]], bool]
"""Whether an entry holds everything that is read from it later."""


class Journal:
    """The log of one run; `entries` reads what is finished from the file, by item, in the order it was added."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        is_whole: Check,
        *,
        number_field: str | None = None,
        restart: bool = False,
    ) -> None:
        """Open the log at `path`, or create it. Damaged entries are removed from the file.

        A log made with other settings is refused, or emptied if `restart` is set. With `number_field` every entry holds
        its number from 0 in that field, and whatever follows the first gap is removed.
        """
        self.path, self.number_field = path, number_field
        # As they come back from the file: tuples are lists there.
        self.settings: Entry = json.loads(json.dumps(settings))
        found = read_header(path)
        differing = _differing(self.settings, found) if found is not None else []
        if differing and not restart:
            raise InputError(
                f"{path}: left by a run over other images or settings (it differs in {', '.join(differing)}); choose "
                "another --out or delete it"
            )
        # Without its header it is unknown what the entries were made with.
        kept = {} if found is None or differing else _positions(path, is_whole, number_field)
        self._stored = _Stored(path, _compacted(path, self.settings, kept))

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Finished entries by item, each read from the file when it is asked for."""
        return self._stored

    def add(self, item: str, entry: Mapping[str, Any]) -> None:
        """Append the entry of a finished item."""
        number = {} if self.number_field is None else {self.number_field: len(self._stored)}
        line = json.dumps({**number, "item": item, **entry}).encode() + b"\n"
        try:
            with self.path.open("ab") as file:
                position = file.tell()
                file.write(line)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        self._stored.positions[item] = position


class _Stored(Mapping[str, Entry]):
    """Entries of a file, by item; `positions` are the bytes at which their lines start."""

    def __init__(self, path: Path, positions: dict[str, int]) -> None:
        self.path, self.positions = path, positions

    def __getitem__(self, item: str) -> Entry:
        position = self.positions[item]
        with _open(self.path) as file:
            file.seek(position)
            entry = parsed(file.readline())
        if entry is None or entry.get("item") != item:
            raise InputError(f"{self.path}: changed while it was in use; run again")
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)


def read_header(path: Path) -> Entry | None:
    """Return the settings a log was made with; None if there is no log or its header is damaged."""
    if not is_there(path):
        return None
    with _open(path) as file:
        header = parsed(file.readline())
    return None if header is None or "item" in header else header


def read_entries(path: Path, is_whole: Check, *, number_field: str | None = None) -> Iterator[Entry]:
    """Yield the whole entries of a log in the order of its lines, without changing the file."""
    for _, entry in _scan(path, is_whole, number_field):
        yield entry


def parsed(line: bytes) -> Entry | None:
    """Return the object a line holds; None if it is damaged, cut short or no object."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and line.endswith(b"\n") else None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number small enough to compute with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _scan(path: Path, is_whole: Check, number_field: str | None) -> Iterator[tuple[int, Entry]]:
    """Yield the position and content of every whole entry."""
    with _open(path) as file:
        position, number = len(file.readline()), 0
        for line in file:
            entry = parsed(line)
            is_next = entry is not None and (number_field is None or entry.get(number_field) == number)
            if entry is not None and is_next and isinstance(entry.get("item"), str) and is_whole(entry):
                yield position, entry
                number += 1
            elif number_field is not None:
                return
            position += len(line)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _positions(path: Path, is_whole: Check, number_field: str | None) -> dict[str, int]:
    """Return where each item's entry starts; of two entries of one item the later counts."""
    return {entry["item"]: position for position, entry in _scan(path, is_whole, number_field)}


def _compacted(path: Path, settings: Entry, kept: Mapping[str, int]) -> dict[str, int]:
    """Rewrite the file as the header and the kept lines; return where these start now."""
    positions = {}
    with replacing(path) as draft, draft.open("wb") as target:
        target.write(json.dumps(settings).encode() + b"\n")
        if kept:
            with _open(path) as source:
                for item, position in kept.items():
                    source.seek(position)
                    positions[item] = target.tell()
                    target.write(source.readline())
    return positions


def _differing(settings: Entry, found: Entry) -> list[str]:
    return sorted(key for key in settings.keys() | found.keys() if settings.get(key) != found.get(key))
