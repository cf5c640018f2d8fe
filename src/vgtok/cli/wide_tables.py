"""Tables of results that fit any terminal: one that is too wide becomes several, each with the first columns again.

Columns and rows of plain values enter, tables of full numbers leave; no cell is ever cut.
"""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

_WIDEST_TEXT = 24
"""Characters a column of text takes before it wraps, unless one of its words is longer."""


def fitting_tables(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int
) -> list[Table]:
    """Return tables of at most `width` characters, numbers aligned right; the first columns name the rows in each."""
    widths = [_width(column, [row[i] for row in rows], numeric[i]) for i, column in enumerate(columns)]
    names = _names(rows, numeric)
    if sum(widths[:names]) > width / 2:
        names = 1
    groups = [list(range(names))]
    for column in range(names, len(columns)):
        wanted = [*groups[-1], column]
        # A column takes its text and two characters between columns; the table one at each end.
        if sum(widths[i] + 2 for i in wanted) + 1 > width and len(groups[-1]) > names:
            groups.append([*range(names), column])
        else:
            groups[-1] = wanted
    tables = []
    for number, group in enumerate(groups):
        table = Table(
            title=escape(title) if number == 0 else None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for i in group:
            table.add_column(
                escape(columns[i]),
                justify="right" if numeric[i] else "left",
                width=min(widths[i], width - 4),
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(_colored(row[i]) for i in group))
        tables.append(table)
    return tables


def _names(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> int:
    """Return how many of the first columns tell all rows apart; those of text before the first number if none do."""
    for count in range(1, len(numeric)):
        if len({tuple(row[:count]) for row in rows}) == len(rows):
            return count
    return next((i for i, is_number in enumerate(numeric) if is_number), 0)


def _width(column: str, cells: Sequence[str], is_number: bool) -> int:
    """Return the characters a column needs: numbers never wrap, text and headings wrap between words."""
    words = [len(word) for text in (column, *(() if is_number else cells)) for word in text.split()]
    whole = max((len(cell) for cell in cells), default=0)
    return max(*words, whole if is_number else min(whole, _WIDEST_TEXT), 1)


def _colored(cell: str) -> str:
    """Show what a cell holds in parentheses at its end, the paper's value, in color."""
    value, space, paper = cell.rpartition(" ")
    return f"{escape(value)}{space}[cyan]{escape(paper)}[/]" if paper.startswith("(") else escape(cell)
