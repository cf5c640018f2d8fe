"""What pages and help texts must not hold: old wording, private imports, install lines that cannot work."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import typer

from tests.docs.pages import ROOT, name_of, pages
from vgtok.cli.main import app

FORBIDDEN = re.compile(r"lessons?\b|unless told|told from 0|goes? on where", re.IGNORECASE)
PRIVATE = re.compile(r"(?:from|import) vgtok\.\w+\.\w+")
PAGES = [pytest.param(page, id=name_of(page)) for page in pages()]


def whole_text(page: Path) -> str:
    """A page with its code; of a notebook every cell."""
    text = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        # It lists old names beside new ones, as code.
        text = re.sub(r"`[^`]+`", "", text)
    if page.suffix == ".md":
        return " ".join(text.split())
    return " ".join(" ".join(cell.source for cell in nbformat.reads(text, as_version=4).cells).split())


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_plain_and_import_from_packages(page: Path) -> None:
    text = whole_text(page)
    assert not FORBIDDEN.search(text)
    assert not PRIVATE.search(text)


@pytest.mark.parametrize("page", PAGES)
def test_install_lines_work_from_the_repository(page: Path) -> None:
    assert not re.search(r"pip install '?vgtok", whole_text(page))


def test_help_texts_are_plain() -> None:
    for text in help_texts(typer.main.get_command(app)):
        assert not FORBIDDEN.search(text), text


def help_texts(command: Any) -> Iterator[str]:
    """What `--help` prints of a command, its options and all below it."""
    yield " ".join((command.help or "").split())
    yield from (" ".join((getattr(parameter, "help", None) or "").split()) for parameter in command.params)
    for inner in getattr(command, "commands", {}).values():
        yield from help_texts(inner)


def test_the_examples_import_from_packages() -> None:
    for script in (ROOT / "examples").glob("*.py"):
        assert not PRIVATE.search(script.read_text(encoding="utf-8")), script
