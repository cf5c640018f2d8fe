"""One Markdown page over a folder of results: every study and benchmark that lies there, with table, notes and plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgtok.errors import InputError
from vgtok.files import read_json

_OF_A_STUDY = {"title", "data", "images", "ran_at", "vgtok", "rows", "notes"}


def results_page(folder: Path) -> str:
    """The page for the `*.json` files of a folder, studies first, then benchmarks; other files are left out."""
    found = {path.stem: _document(path) for path in sorted(folder.glob("*.json"))}
    documents = {name: document for name, document in found.items() if document is not None}
    studies = {name: document for name, document in documents.items() if "study" in document}
    benchmarks = {name: document for name, document in documents.items() if "study" not in document}
    parts = [
        "# Results",
        "Written by `vgtok study NAME` and `vgtok bench NAME`; figures of the paper stand beside the measured ones. "
        "The numbers in full are in the JSON and CSV files beside this page.",
        *(_study(name, document, folder) for name, document in studies.items()),
        *(_benchmark(name, document) for name, document in benchmarks.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _document(path: Path) -> dict[str, Any] | None:
    """The results in a file; None where it is damaged or holds something else."""
    try:
        document = read_json(path)
    except InputError:
        return None
    if not isinstance(document, dict) or ("study" in document and not document.keys() >= _OF_A_STUDY):
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
        _table(document["rows"]),
        "\n".join(f"- {note}" for note in document["notes"]),
    ]
    if (folder / f"{name}.png").exists():
        lines.append(f"![{document['title']}]({name}.png)")
    return "\n\n".join(line for line in lines if line)


def _benchmark(name: str, document: Mapping[str, Any]) -> str:
    single = [{"quantity": key, "value": value} for key, value in document.items() if key != "rows"]
    tables = [_table(single), *([_table(document["rows"])] if "rows" in document else [])]
    return "\n\n".join([f"## {name}", *tables])


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(rows[0])
    head = "| " + " | ".join(column.replace("_", " ") for column in columns) + " |"
    rule = "|" + "---|" * len(columns)
    body = ["| " + " | ".join(_cell(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join([head, rule, *body])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
