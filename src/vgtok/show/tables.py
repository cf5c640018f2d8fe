"""Tables as Markdown and HTML, and the page of results made of them.

Cells enter as values or text; `cell_text` formats a value, `markdown_text` escapes a name, `html_table` escapes itself.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from vgtok.errors import InputError
from vgtok.files import read_json

_MARKDOWN = re.compile(r"[\\`*_\[\]<>|!#&]")
"""Characters that need a backslash in Markdown."""


def cell_text(value: Any) -> str:
    """Return a value as a cell: '-' for None, floats with at most four decimals, everything else as text."""
    if value is None:
        return "-"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def markdown_text(text: str) -> str:
    """Escape text for Markdown: names of classes and files may contain HTML, links, anything."""
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: bool = False) -> str:
    """Return a Markdown table of Markdown cells; with `numeric` all columns but the first are right-aligned."""
    rule = "|---|" + ("---:|" if numeric else "---|") * (len(columns) - 1)
    head, *body = (f"| {' | '.join(cells)} |" for cells in (columns, *rows))
    return "\n".join([head, rule, *body])


def markdown_records(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of equal fields as a Markdown table, with the fields of the first as its columns."""
    columns = list(rows[0])
    cells = [[cell_text(row[column]) for column in columns] for row in rows]
    return markdown_table([column.replace("_", " ") for column in columns], cells)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table of text cells, escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


_STUDY_FIELDS = {"title", "data", "images", "ran_at", "vgtok", "rows", "notes"}


def results_page(folder: Path) -> str:
    """Return the page for the `*.json` files of a folder, studies first, then benchmarks; other files are left out."""
    found = {path.stem: _document(path) for path in sorted(folder.glob("*.json"))}
    documents = {name: document for name, document in found.items() if document is not None}
    studies = {name: document for name, document in documents.items() if "study" in document}
    benchmarks = {name: document for name, document in documents.items() if "study" not in document}
    parts = [
        "# Results",
        "Written by `vgtok study NAME` and `vgtok bench NAME`; the paper's numbers are beside the measured ones. "
        "The JSON and CSV files beside this page have all digits.",
        *(_study(name, document, folder) for name, document in studies.items()),
        *(_benchmark(name, document) for name, document in benchmarks.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _document(path: Path) -> dict[str, Any] | None:
    """Return the results in a file, or None if it is damaged or holds something else."""
    try:
        document = read_json(path)
    except InputError:
        return None
    if not isinstance(document, dict) or ("study" in document and not document.keys() >= _STUDY_FIELDS):
        return None
    rows = document.get("rows", [{}])
    whole = (
        isinstance(rows, list) and rows and all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)
    )
    return document if document and whole else None


def _study(name: str, document: Mapping[str, Any], folder: Path) -> str:
    data = f"{document['data']}, {document['images']} images, " if document["data"] else ""
    lines = [
        f"## {name}",
        f"{document['title']} ({data}{document['ran_at'][:10]}, vgtok {document['vgtok']}).",
        markdown_records(document["rows"]),
        "\n".join(f"- {note}" for note in document["notes"]),
    ]
    if (folder / f"{name}.png").exists():
        lines.append(f"![{document['title']}]({name}.png)")
    return "\n\n".join(line for line in lines if line)


def _benchmark(name: str, document: Mapping[str, Any]) -> str:
    single = [{"quantity": key, "value": value} for key, value in document.items() if key != "rows"]
    tables = [single, *([document["rows"]] if "rows" in document else [])]
    return "\n\n".join([f"## {name}", *map(markdown_records, tables)])
