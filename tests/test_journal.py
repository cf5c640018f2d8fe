"""The journal of a long run: what is damaged costs its line, what was made with other settings is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vgtok import InputError
from vgtok.journal import Journal

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
