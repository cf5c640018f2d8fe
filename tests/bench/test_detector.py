"""The detector's benchmarks on the smallest input: every figure present and plausible."""

import json

import pytest
from typer.testing import CliRunner

from vgtok.bench import detector as bench
from vgtok.bench.detector import measure_detector, measure_step
from vgtok.cli.main import app


def test_a_step_is_timed() -> None:
    cost = measure_step("co-detr-vit-tiny", side=64, budget=1.0, repeats=2)
    assert 0 < cost.step_s <= cost.median_s
    assert cost.processor_s > 0
    assert cost.tokens == 16


def test_a_frame_is_timed_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = bench.fit_canvas
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels: fit(pixels, (128, 128)))
    cost = measure_detector("co-detr-vit-tiny", None, budget=0.5, repeats=1)
    assert min(cost.tokenize_s, cost.encode_s, cost.detect_s) > 0
    assert cost.process_peak_mb > 100
    assert cost.tokens <= 64


def test_the_command_speaks_json() -> None:
    run = CliRunner().invoke(app, ["bench", "step", "--side", "64", "--repeats", "1", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout)["config"] == "co-detr-vit-tiny"
    text = CliRunner().invoke(app, ["bench", "step", "--side", "64", "--repeats", "1"])
    assert "processor time" in text.stdout
