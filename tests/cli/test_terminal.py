"""Every command in a terminal of 80 columns: help, listings and tables fit, and nothing one has to type is cut."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from rich.cells import cell_len

from tests.command_line import Run
from vgtok.cli import main
from vgtok.detect.config import DETECTORS
from vgtok.study.registry import STUDIES
from vgtok.tokenize import calibrate
from vgtok.train.recipe import RECIPES, Recipe

COLUMNS = 80


def commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and all its subcommands, each with the words that name it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


EVERY = dict(commands(typer.main.get_command(main.app)))


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.chdir(tmp_path)


def fits(printed: str) -> None:
    """Assert that no line is wider than the terminal and no cell is cut."""
    assert not [line for line in printed.splitlines() if cell_len(line) > COLUMNS]
    assert "…" not in printed


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help(vgtok: Run, words: tuple[str, ...]) -> None:
    code, printed, _ = vgtok(*words, "--help")
    assert code == 0
    fits(printed)
    typed = set(printed.replace(",", " ").replace("/", " ").split())
    command = EVERY[words]
    names = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
    assert "--help" in typed
    assert "<bool>" not in printed, "a flag takes no value"
    assert {*names, *getattr(command, "commands", {})} <= typed


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("study",), STUDIES),
        (("train",), RECIPES),
        (("train", "tiny-visdrone", "--list"), [name for group in Recipe.describe().values() for name in group]),
        (("models",), DETECTORS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_listings(vgtok: Run, words: tuple[str, ...], names: Any) -> None:
    code, printed, err = vgtok(*words)
    assert code == 0, err
    fits(printed)
    assert set(names) <= set(printed.split())


def test_settings_are_explained_by_group(vgtok: Run) -> None:
    printed = vgtok("train", "tiny-visdrone", "--list")[1]
    text = " ".join(printed.split())
    for group, settings in Recipe.describe().items():
        assert f"{group}\n" in "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
        for name, meaning in settings.items():
            assert name in text
            assert meaning in text


def test_results_with_long_names(vgtok: Run, tmp_path: Path) -> None:
    name = "a-survey-flight-over-the-harbor-of-a-large-city-2026-11-17-frame-000123"
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    code, printed, err = vgtok("tokenize", f"{name}.png", "--canvas", "native")
    assert code == 0, err
    fits(printed)
    cells = "".join(line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│"))
    assert cells == f"{name}.png"


@pytest.mark.parametrize("study", ["seeds"])
def test_results_of_a_study(vgtok: Run, study: str) -> None:
    code, printed, err = vgtok("study", study)
    assert code == 0, err
    fits(printed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    def completed(**variables: str) -> str:
        command = [sys.executable, "-m", "vgtok"]
        environment = {**os.environ, **variables, "_TYPER_COMPLETE_ARGS": "vgtok study bud", "COMP_CWORD": "2"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**environment, "COMP_WORDS": "vgtok study bud"}
        )
        assert "Traceback" not in done.stderr
        return done.stdout

    script = completed(_VGTOK_COMPLETE=f"source_{shell}")
    assert f"_VGTOK_COMPLETE=complete_{shell}" in script
    answer = completed(_VGTOK_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert "budget-audit" in answer
    assert "ladder" not in answer


def test_warnings_are_one_line_without_a_place_in_the_code(vgtok: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> dict[str, str]:
        warnings.warn("labels/1.txt: box without area, skipped", stacklevel=2)
        return {}

    monkeypatch.setattr("vgtok.cli.options.key_values", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, err = vgtok("train", "synthetic-smoke", "--set", "batch=2", "--list", "--json")
    assert (code, err.strip()) == (0, "warning: labels/1.txt: box without area, skipped")


def test_ctrl_c_while_calibrating_says_what_is_kept(
    vgtok: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frames").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / "frames" / f"{number}.png")
    words = ("calibrate", "--data", "frames", "--rank", 0, "--canvas", "native", "--workers", 1)
    original, calls = calibrate.sweep_image, []

    def sweep(job: Any) -> Any:
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(job)

    monkeypatch.setattr(calibrate, "sweep_image", sweep)
    code, _, err = vgtok(*words)
    assert code == 130
    assert "interrupted: measured images are kept in retention.json.partial; run the same command to go on" in err
    assert vgtok(*words)[0] == 0
    assert len(calls) == 4, "the two finished images are not measured again"
