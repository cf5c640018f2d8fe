"""Navigation by folder: an entry of `nav` that ends in a slash becomes every page in that folder, by name."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Expand the folders once every page is known, generated ones included."""
    config.nav = [_expanded(entry, files) for entry in config.nav or []]
    return files


on_files.mkdocs_priority = -100  # type: ignore[attr-defined]


def _expanded(entry: Any, files: Files) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(value, files) for title, value in entry.items()}
    if isinstance(entry, list):
        return [_expanded(value, files) for value in entry]
    if not entry.endswith("/"):
        return entry
    inside = (Path(file.src_uri) for file in files.documentation_pages() if file.src_uri.startswith(entry))
    # A folder's index comes first, as it opens the section.
    return [path.as_posix() for path in sorted(inside, key=lambda path: (path.stem != "index", path.name))]
