"""The model in the package, by the commands of the demo."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from vgtok.cli.main import app
from vgtok.detect.loading import load, shipped_models


def test_it_is_small_and_says_what_it_is() -> None:
    folder = shipped_models()["vgtok-tiny"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 25e6
    detector = load("vgtok-tiny")
    assert "academic use" in detector.license
    assert detector.table is not None
    card = (folder / "README.md").read_text()
    assert "tiny-visdrone" in card
    assert "AP50" in card


def test_the_demo_finds_most_cars_and_little_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for words in (
        ["sample", "demo/frame.png", "--seed", "89", "--truth", "demo/truth.json"],
        ["detect", "demo/frame.png", "--budget", "0.40", "--write", "tokens", "--write", "coco", "--out", "demo"],
        ["evaluate", "--data", "coco:demo/truth.json:demo", "--predictions", "demo/detections.json", "--json"],
    ):
        more = ["--score-threshold", "0.3"] if words[0] == "evaluate" else []
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, done.output
    torch.set_num_threads(threads)
    result = json.loads(done.stdout)
    assert result["precision"] >= 0.8
    assert result["recall"] >= 0.6
    assert (tmp_path / "demo" / "frame.tokens.jpg").is_file()
