"""The remaining verbs from the outside: calibrate, bench, study and sample, each with clean JSON."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_tokenize import vgtok


def test_calibrate_writes_a_table_tokenize_can_use(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    for seed in range(2):
        pixels = np.random.default_rng(seed).integers(0, 256, (128, 192, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "frames" / f"{seed}.png")
    options = ("--data", "frames", "--rank", 0.2, "--rank", 0.3, "--canvas", "192x128", "--workers", 2)
    done = vgtok("calibrate", *options, "--out", "own.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["curves"]) == 2
    assert not (tmp_path / "own.json.partial").exists()
    done = vgtok("tokenize", "frames", "--table", "own.json", "--budget", 0.5, "--canvas", "192x128", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = vgtok("calibrate", *options, "--out", "own.json", cwd=tmp_path)
    assert "unreachable" in shown.stdout


def test_bench_tokenizer_times_a_rendered_frame(tmp_path: Path) -> None:
    done = vgtok("bench", "tokenizer", "--repeats", 3, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert (cost["frame"], cost["repeats"]) == ("rendered", 3)
    assert min(cost[name] for name in ("tokenize_ms", "yardstick_ms", "decode_resize_ms", "budget_ms")) > 0
    # All are taken in turn in one run, so load moves them alike; the figures in the docs are a fifth of this.
    assert cost["tokenize_over_yardstick"] < 6
    assert cost["peak_extra_mb"] is None or cost["peak_extra_mb"] < 64
    assert vgtok("bench", "tokenizer", "--image", "missing.jpg", cwd=tmp_path).returncode == 1


def test_the_map_lists_the_whole_paper(tmp_path: Path) -> None:
    done = vgtok("study", "--json", cwd=tmp_path)
    entries = json.loads(done.stdout)["entries"]
    labels = [entry["item"] for entry in entries]
    assert sum(label.startswith("Tab.") for label in labels) == 18
    assert sum(label.startswith("Fig.") for label in labels) == 4
    assert "inversion" in vgtok("study", cwd=tmp_path).stdout


def test_studies_that_cannot_run_say_why(tmp_path: Path) -> None:
    for words, message in (
        (["nonsense"], "no such study"),
        (["ladder", "--data", "visdrone:nowhere"], "nowhere"),
        (["inversion", "--model", "vgtok-tiny"], "--model"),
    ):
        done = vgtok("study", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_sample_renders_a_frame_with_its_objects(tmp_path: Path) -> None:
    done = vgtok("sample", "frame.png", "--size", "320x192", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "frame.png") as picture:
        assert picture.size == (320, 192)
    assert json.loads(done.stdout)["width"] == 320
    assert "WIDTHxHEIGHT" in vgtok("sample", "frame.png", "--size", "wide", cwd=tmp_path).stderr


@pytest.mark.parametrize("options", [("--size", "32x32"), ("--size", "999999x999999"), ("--seed", "-1")])
def test_scenes_that_cannot_be_drawn_are_one_line(tmp_path: Path, options: tuple[str, str]) -> None:
    done = vgtok("sample", "x.png", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: s")
    assert len(done.stderr.splitlines()) == 1
