"""Tables that are too wide for the terminal: every cell is there, none is cut, and every part names its rows."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from vgtok.cli.study import _tables
from vgtok.cli.wide_tables import fitting_tables

RESULTS = sorted(
    path for path in (Path(__file__).parents[2] / "docs" / "results").glob("*.json") if "bench" not in path.name
)


def printed(tables: list[object], width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    for table in tables:
        console.print(table)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [80, 120])
def test_every_result_of_a_study_fits(path: Path, width: int) -> None:
    document = json.loads(path.read_text())
    for rows in filter(None, (document["rows"], document["paper_only"])):
        text = printed([*_tables(document["title"], rows, width)], width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert "…" not in text


words = st.text("abcdefgh", min_size=1, max_size=12)
numbers = st.integers(-99999, 99999).map(str)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=12).flatmap(
        lambda numeric: st.tuples(
            st.just(numeric),
            st.lists(words, min_size=len(numeric), max_size=len(numeric)),
            st.lists(st.tuples(*(numbers if number else words for number in numeric)), min_size=1, max_size=4),
        )
    )
)
def test_every_cell_is_printed_whole(table: tuple[list[bool], list[str], list[tuple[str, ...]]]) -> None:
    numeric, columns, rows = table
    text = printed([*fitting_tables("title", columns, rows, numeric, 60)], 60)
    assert max(map(cell_len, text.splitlines())) <= 60
    found = text.split()
    for row in rows:
        assert set(row) <= set(found)
    assert set(columns) <= set(found)


def test_parts_repeat_the_columns_that_tell_rows_apart() -> None:
    rows = [("x", "1", *("0.123456789",) * 6), ("x", "2", *("0.987654321",) * 6)]
    tables = fitting_tables("t", ["name", "seed", *"abcdef"], rows, [False, *[True] * 7], 40)
    assert len(tables) > 2
    for table in tables:
        assert [str(column.header) for column in table.columns][:2] == ["name", "seed"]
