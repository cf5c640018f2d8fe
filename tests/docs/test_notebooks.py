"""The notebooks run, and print what they were committed with."""

import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def script(name: str) -> ModuleType:
    """A script of the docs folder, which is not a package, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["1-tokenize", "2-wrap-your-vit", "3-evaluate-on-visdrone"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_was_committed_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGTOK_VISDRONE", raising=False)
    run = script("run_notebooks")
    committed = run.printed(nbformat.read(path, as_version=4))
    assert any(committed)
    assert run.printed(run.executed(path)) == committed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_small_and_name_no_machine(path: Path) -> None:
    assert path.stat().st_size < 300_000
    notebook = nbformat.read(path, as_version=4)
    assert set(notebook.metadata) == {"kernelspec"}
    assert not any("site-packages" in text or "Traceback" in text for text in script("run_notebooks").printed(notebook))


def test_the_third_runs_on_visdrone_itself(visdrone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGTOK_VISDRONE", str(visdrone))
    run = script("run_notebooks")
    assert run.printed(run.executed(NOTEBOOKS[2]))[0].startswith("24 images")
