"""Benchmarks of models on the smallest input: every figure is present and plausible, ratios follow from the rows."""

import json

import pytest
from typer.testing import CliRunner

from vgtok.bench import model as bench
from vgtok.bench.model import EncoderRow, compared, measure_detector
from vgtok.cli.main import app


def test_a_frame_is_timed_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = bench.fit_canvas
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels: fit(pixels, (128, 128)))
    cost = measure_detector("co-detr-vit-tiny", None, budget=0.5, repeats=1)
    assert min(cost.tokenize_s, cost.encode_s, cost.detect_s) > 0
    assert cost.process_peak_mb > 100
    assert cost.tokens <= 64


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ways_are_compared_in_one_run(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "best_precision", lambda: precision)
    cost = bench.measure_step("co-detr-vit-tiny", side=64, budget=1.0, repeats=2)
    ways = [(row.precision, row.losses, row.crops_per_pass) for row in cost.rows]
    fp32 = [("fp32", losses, crops) for losses in ("all", "atss") for crops in (1, 4)]
    assert ways == fp32 + ([("bf16", *way[1:]) for way in fp32] if precision == "bf16" else [])
    assert cost.tokens == 16
    first = cost.rows[0].seconds_per_crop
    assert [row.ratio for row in cost.rows] == pytest.approx([row.seconds_per_crop / first for row in cost.rows])
    # The decoder is left out: on the same crop that is never dearer, whatever the machine is doing.
    assert cost.rows[2].processor_seconds_per_crop < cost.rows[0].processor_seconds_per_crop


def test_the_command_speaks_json_and_tables() -> None:
    run = CliRunner().invoke(app, ["bench", "step", "--side", "64", "--repeats", "1", "--json"])
    assert run.exit_code == 0
    document = json.loads(run.stdout)
    assert document["config"] == "co-detr-vit-tiny"
    assert {"precision", "losses", "seconds_per_crop"} <= document["rows"][0].keys()
    text = CliRunner().invoke(app, ["bench", "step", "--side", "64", "--repeats", "1"])
    assert "atss" in text.stdout


def test_realised_is_speed_up_over_the_ratio_of_flops() -> None:
    dense = EncoderRow("dense", 1.0, 9216, gflops=1000.0, ms=800.0, peak_mb=100.0)
    packed = compared(EncoderRow("packed", 0.4, 3687, gflops=250.0, ms=250.0, peak_mb=40.0), dense)
    assert packed.speedup == pytest.approx(3.2)
    assert packed.realised == pytest.approx(0.8)
    assert compared(packed, packed) == packed
