"""`vgtok bench encoder` from the outside, at a budget small enough for a test."""

import json
from pathlib import Path

from tests.cli.test_tokenize import vgtok


def test_rows_hold_every_figure_and_ratios_need_dense(tmp_path: Path) -> None:
    options = ("--config", "eva02-tiny", "--packed-only", "--budget", 0.0625, "--repeats", 1)
    done = vgtok("bench", "encoder", *options, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    (row,) = cost["rows"]
    assert list(row) == ["execution", "budget", "tokens", "gflops", "ms", "peak_mb", "speedup", "realised"]
    assert row["tokens"] == 576
    assert row["speedup"] is row["realised"] is None
    assert 0 < row["peak_mb"] < cost["process_peak_mb"]


def test_an_unknown_configuration_is_one_line(tmp_path: Path) -> None:
    done = vgtok("bench", "encoder", "--config", "vit-huge", cwd=tmp_path)
    assert done.returncode == 1
    assert "config: 'vit-huge' is not one of" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


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
