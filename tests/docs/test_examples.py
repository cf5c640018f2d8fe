"""The scripts of examples/ run, on rendered images, and print what they say they do."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"

PRINTED = {
    "tokenize_folder": "of 8640 tokens, 40.0%",
    "detect_to_coco": "of 9216 tokens",
    "own_scorer": "tokens each",
    "wrap_vit": "unwrapped, bit for bit: True",
    "evaluate_predictions": "AP 100.0; cap 100",
}
"""By script, part of what it prints."""

WRITTEN = {
    "tokenize_folder": ("example-tokens/0000000007.npz", "example-tokens/0000000007.png"),
    "detect_to_coco": ("example-found.png", "example-found.json"),
    "own_scorer": ("example-redness.png",),
}
"""By script, the files it leaves."""


def test_each_example_is_short_and_tested() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert {script.stem for script in scripts} == set(PRINTED)
    assert all(len(script.read_text(encoding="utf-8").splitlines()) <= 35 for script in scripts)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert PRINTED[name] in capsys.readouterr().out
    assert all((tmp_path / file).stat().st_size > 0 for file in WRITTEN.get(name, ()))
