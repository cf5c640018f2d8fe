"""Retention tables by name: those the package ships, or a file of the caller's own."""

from importlib.resources import files
from pathlib import Path

from vgtok.errors import InputError
from vgtok.files import is_there
from vgtok.tokenize.retention import RetentionTable


def shipped_tables() -> dict[str, Path]:
    """Name and file of every table in the package."""
    folder = Path(str(files("vgtok.calibrate") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def load_table(name_or_path: str | Path) -> RetentionTable:
    """Load a shipped table by name or a table file by path."""
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"table: a {type(name_or_path).__name__} is neither the name of a table nor a file")
    shipped = shipped_tables()
    if str(name_or_path) in shipped:
        return RetentionTable.from_file(shipped[str(name_or_path)])
    path = Path(name_or_path)
    if not is_there(path):
        raise InputError(
            f"table: '{name_or_path}' is neither a file nor a shipped table ({', '.join(shipped) or 'none shipped'})"
        )
    return RetentionTable.from_file(path)
