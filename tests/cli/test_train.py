"""`vgtok train` without training: recipes and their settings, and old names of settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import Run


def test_recipes_are_listed(vgtok: Run) -> None:
    code, out, _ = vgtok("train", "--json")
    assert code == 0
    assert json.loads(out)["synthetic-smoke"]["learning_rate"] == 1e-3
    assert "tiny-visdrone" in vgtok("train")[1]


def test_settings_are_listed_by_group_with_their_values(vgtok: Run) -> None:
    words = ("train", "synthetic-smoke", "--set", "batch=7", "--list")
    code, out, _ = vgtok(*words)
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert [line for line in lines if not line.startswith(" ")][:-1] == [
        "model", "data", "tokens", "optimization", "saving and evaluation",
    ]  # fmt: skip
    assert lines[-1] == "change one with: vgtok train synthetic-smoke --set NAME=VALUE"
    text = " ".join(out.split())
    assert "batch 7 - Samples per step, over all processes." in text
    assert "budgets 1.0,0.7,0.4 - Budgets, one drawn for each image; exact counts unless table is set." in text
    assert json.loads(vgtok(*words, "--json")[1])["batch"] == 7


def test_an_old_name_is_accepted_with_a_line_on_standard_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vgtok", "train", "synthetic-smoke", "--set", "rate=0.5", "--list", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["learning_rate"] == 0.5
    assert done.stderr.strip() == "--set rate: is now called learning_rate"


def test_bad_settings_are_one_line(vgtok: Run) -> None:
    for word, message in (("batch", "write it as key=value"), ("batch=two", "expected a whole number")):
        code, _, err = vgtok("train", "synthetic-smoke", "--set", word)
        assert code == 1
        assert message in err


def test_other_settings_train_in_a_folder_of_their_own(
    vgtok: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Length and evaluation may change; whatever changes the weights starts another run."""
    monkeypatch.chdir(tmp_path)
    used: list[Path] = []

    def note(recipe: object, run: Path) -> None:
        used.append(run)

    monkeypatch.setattr("vgtok.train.loop.train", note)
    for settings in ((), ("steps=700",), ("batch=4",), ("batch=4", "evaluate_every=0"), ()):
        words = [word for setting in settings for word in ("--set", setting)]
        assert vgtok("train", "synthetic-smoke", *words)[0] == 0
    assert [path.name for path in used] == ["train", "train", "train-2", "train-2", "train"]
    assert vgtok("train", "synthetic-smoke", "--out", tmp_path / "mine")[0] == 0
    assert used[-1] == tmp_path / "mine"
