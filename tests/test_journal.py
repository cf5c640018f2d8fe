"""The resumable log: a damaged line costs its item, other settings are refused, numbered entries have no gap."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vgtok import InputError
from vgtok.journal import Journal, read_entries, read_header

SETTINGS = {"model": "small", "canvas": (64, 32)}


def has_value(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("value"), int)


def opened(path: Path, **changes: Any) -> Journal:
    return Journal(path, {**SETTINGS, **changes}, has_value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = opened(tmp_path / "journal.jsonl")
    for number in range(3):
        journal.add(str(number), {"value": number})
    return journal.path


@pytest.mark.parametrize(
    "line",
    [
        b'{"item": "1", "val',
        b'{"item": "1", "value": \xff\xfe}',
        b'{"item": "1"}',
        b'{"item": 1, "value": 1}',
        b"[1]",
        b"[" * 100_000,
        b"\x00" * 512,
    ],
)
def test_a_damaged_line_costs_its_item(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line, lines[3]]) + b"\n")
    journal = opened(path)
    assert list(journal.entries) == ["0", "2"]
    journal.add("1", {"value": 1})
    assert list(opened(path).entries) == ["0", "2", "1"]


@pytest.mark.parametrize("header", [b"", b'{"model": "sm', b"\xff\xff", b'{"item": "0", "value": 0}'])
def test_a_torn_header_is_none(path: Path, header: bytes) -> None:
    path.write_bytes(b"\n".join([header, *path.read_bytes().splitlines()[1:]]) + b"\n")
    assert opened(path).entries == {}
    assert json.loads(path.read_text().splitlines()[0]) == {"model": "small", "canvas": [64, 32]}


def test_an_empty_file_is_none(path: Path) -> None:
    path.write_bytes(b"")
    assert opened(path).entries == {}


def test_other_settings_are_refused_and_named(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match="differs in budget, model"):
        opened(path, model="large", budget=1)
    assert path.read_bytes() == before


def test_a_folder_that_was_removed_is_one_line(path: Path) -> None:
    journal = opened(path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(InputError, match="cannot be written"):
        journal.add("3", {"value": 3})


def numbered(path: Path, **changes: Any) -> Journal:
    return Journal(path, {**SETTINGS, **changes}, has_value, number_field="frame", restart=True)


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    journal = numbered(tmp_path / "frames.jsonl")
    for number in range(3):
        journal.add(f"clip#{number}", {"value": number})
    return journal.path


@pytest.mark.parametrize(
    "rest",
    [
        b'{"frame": 3, "item',
        b'{"frame": 3, "item": "x", "value": 1}',
        b'{"frame": 2, "item": "x", "value": 1}\n',
        b'{"frame": 4, "item": "x", "value": 1}\n',
        b'{"item": "x", "value": 1}\n',
        b'[]\n{"frame": 3, "item": "x", "value": 1}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_follows_a_gap_in_the_numbers_is_removed(frames: Path, rest: bytes) -> None:
    whole = frames.read_bytes()
    frames.write_bytes(whole + rest)
    assert [entry["frame"] for entry in read_entries(frames, has_value, number_field="frame")] == [0, 1, 2]
    journal = numbered(frames)
    assert (len(journal.entries), frames.read_bytes()) == (3, whole)
    journal.add("clip#3", {"value": 3})
    assert [entry["frame"] for entry in numbered(frames).entries.values()] == [0, 1, 2, 3]


def test_a_restarted_journal_is_empty_under_its_new_header(frames: Path) -> None:
    assert read_header(frames) == {"model": "small", "canvas": [64, 32]}
    assert len(numbered(frames, model="large").entries) == 0
    assert [json.loads(line) for line in frames.read_text().splitlines()] == [{"model": "large", "canvas": [64, 32]}]


def test_entries_are_read_from_the_file(path: Path) -> None:
    journal = opened(path)
    journal.add("1", {"value": 7})
    assert [entry["value"] for entry in journal.entries.values()] == [0, 7, 2]
    assert journal.entries.get("5") is None
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        list(journal.entries.values())
