"""The site: built with warnings as errors, whole, and without a single address that is not its own."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

import vgtok
from tests.docs.pages import ROOT
from tests.docs.test_notebooks import script
from vgtok.cli.main import app

FACADES = [
    f"vgtok.{folder.name}"
    for folder in Path(vgtok.__file__).parent.iterdir()
    if (folder / "__init__.py").is_file() and "lazy_names" in (folder / "__init__.py").read_text()
]
"""The packages that offer names."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_folders_of_the_navigation_hold_their_pages(site: Path) -> None:
    # A page outside the navigation is a warning, so that the build fails; here, that folders expand at all.
    for folder in ("how-to", "guide", "notebooks", "protocols", "reference", "decisions"):
        for page in (site / folder).glob("*.html"):
            others = [other for other in (site / folder).glob("*.html") if other != page]
            assert all(f'href="{page.name}"' in other.read_text() for other in others), page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\" >]+)", re.DOTALL
    )
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", sheet.read_text()), sheet


def test_the_reference_has_every_public_name_and_verb(site: Path) -> None:
    for package in ("vgtok", *FACADES):
        page = (site / "reference" / f"{package.partition('.')[2] or 'index'}.html").read_text()
        for name in import_module(package).__all__:
            assert name.startswith("__") or f"{package}.{name}" in page, f"{package}.{name}"
    verbs = (site / "reference" / "command-line.html").read_text()
    for verb in typer.main.get_command(app).commands:
        assert f"vgtok {verb}" in verbs, verb


def test_results_and_changelog_are_there_as_written(site: Path) -> None:
    results = (site / "results" / "index.html").read_text()
    for heading in re.findall(r"^## (.+)$", (ROOT / "docs" / "results" / "README.md").read_text(), re.MULTILINE):
        assert f'id="{heading}"' in results
    assert vgtok.__version__ in (site / "changelog.html").read_text()


def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    page = (site / "notebooks" / "1-tokenize.html").read_text()
    assert "3687 tokens of 9216" in page
    assert (site / "notebooks" / "1-tokenize-1.jpg").stat().st_size > 10_000
    assert (site / "notebooks" / "1-tokenize.ipynb").is_file()


def test_examples_in_docstrings_are_sessions(site: Path) -> None:
    assert "doctest: +SKIP" not in (site / "reference" / "index.html").read_text()


def test_every_stage_has_its_picture() -> None:
    shown = re.findall(r"images/stages/(\w+)\.jpg", (ROOT / "docs" / "concepts.md").read_text())
    drawn = script("pictures").stages()
    assert shown == list(drawn)
    assert all((ROOT / "docs" / "images" / "stages" / f"{name}.jpg").is_file() for name in shown)
    for rows in drawn.values():
        assert all(picture.ndim == 3 and picture.std() > 5 for row in rows for _, picture in row)
