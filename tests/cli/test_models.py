"""`vgtok models` and `vgtok sample`, and the shipped model by the commands of the demo."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from tests.cli.test_tokenize import vgtok as run_vgtok
from tests.command_line import Run
from vgtok.cli.main import app
from vgtok.detect.loading import load, shipped_models


def test_models_are_counted(vgtok: Run) -> None:
    code, out, _ = vgtok("models", "--json")
    assert code == 0
    large = next(row for row in json.loads(out)["models"] if row["name"] == "co-detr-eva02-large")
    assert large["parameters"] / 1e6 == pytest.approx(364.99, abs=0.005)
    assert large["parameters_with_fusion"] / 1e6 == pytest.approx(376.27, abs=0.005)
    assert large["dense_gflops"] == pytest.approx(12955.5, rel=1e-3)
    assert (large["classes"], large["queries"]) == (10, 1500)
    parts = {
        "encoder": 304.24,
        "neck": 24.00,
        "query_head": 19.72,
        "rpn_head": 0.60,
        "roi_head": 15.22,
        "atss_head": 1.22,
    }
    for part, millions in parts.items():
        assert large["parts"][part] / 1e6 == pytest.approx(millions, abs=0.006), part
    assert "co-detr-vit-tiny" in vgtok("models", "co-detr-vit-tiny")[1]
    assert "is not one of" in vgtok("models", "yolo")[2]


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


def test_sample_renders_a_frame_with_its_objects(tmp_path: Path) -> None:
    done = run_vgtok("sample", "frame.png", "--size", "320x192", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "frame.png") as picture:
        assert picture.size == (320, 192)
    assert json.loads(done.stdout)["width"] == 320
    assert "WIDTHxHEIGHT" in run_vgtok("sample", "frame.png", "--size", "wide", cwd=tmp_path).stderr


@pytest.mark.parametrize("options", [("--size", "32x32"), ("--size", "999999x999999"), ("--seed", "-1")])
def test_scenes_that_cannot_be_drawn_are_one_line(tmp_path: Path, options: tuple[str, str]) -> None:
    done = run_vgtok("sample", "x.png", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: s")
    assert len(done.stderr.splitlines()) == 1
