"""The detector's benchmarks on the smallest input: every figure present and plausible."""

import pytest
from typer.testing import CliRunner

from vgtok.bench import detector as bench
from vgtok.bench.detector import Speedup, measure_detector, measure_speedup
from vgtok.cli.main import app
from vgtok.tokenize.canvas import fit_canvas


def test_a_frame_is_timed_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = bench.fit_canvas
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels: fit(pixels, (128, 128)))
    cost = measure_detector("co-detr-vit-tiny", None, budget=0.5, repeats=1)
    assert min(cost.tokenize_s, cost.encode_s, cost.detect_s) > 0
    assert cost.process_peak_mb > 100
    assert cost.tokens <= 64


def test_speedups_follow_amdahl() -> None:
    cost = Speedup(
        "any", 0.4, 100, 1, dense_encode_s=6.0, dense_detect_s=2.0, tokenize_s=0.1, encode_s=2.0, detect_s=2.0
    )
    assert cost.encoder == 3.0
    assert cost.whole == pytest.approx(8 / 4.1)
    assert cost.allowed == pytest.approx(2.0)
    assert cost.to_dict()["share_of_allowed"] == pytest.approx(4 / 4.1)


def test_both_ways_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels: fit_canvas(pixels, (256, 128)))
    cost = measure_speedup("co-detr-vit-tiny", None, budget=0.5, repeats=1)
    assert abs(cost.tokens - 0.5 * 8 * 15) <= 2
    assert min(cost.dense_encode_s, cost.dense_detect_s, cost.tokenize_s, cost.encode_s, cost.detect_s) > 0
    done = CliRunner().invoke(app, ["bench", "speedup", "--image", "missing.jpg"])
    assert done.exit_code == 1
