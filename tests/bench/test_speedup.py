"""The speed-up of a detector on a small canvas: every way is there, ratios follow from the times."""

import json

import pytest
from typer.testing import CliRunner

from vgtok.bench import speedup as bench
from vgtok.cli.main import app
from vgtok.tokenize.canvas import fit_canvas


@pytest.mark.parametrize("half", [False, True])
def test_every_way_is_compared_with_dense_and_with_plain(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels, _: fit_canvas(pixels, (256, 128)))
    monkeypatch.setattr(bench, "multiplies_bfloat16", lambda _: half)
    cost = bench.measure_speedup("vgtok-tiny", None, (0.5,), repeats=1, large=False)
    sparse = [(0.5, None), (0.5, "roots"), (0.5, "tokens")]
    assert [(row.budget, row.sparse) for row in cost.rows] == [(1.0, None)] + [(1.0, None), *sparse] * (1 + half)
    assert [row.plain for row in cost.rows] == [True] + [False] * (len(cost.rows) - 1)
    plain, dense = cost.rows[:2]
    assert dense.over_dense == 1.0
    assert dense.over_plain == pytest.approx(plain.ms / dense.ms)
    for row in cost.rows[2:5]:
        assert row.over_dense == pytest.approx(dense.ms / row.ms)
    assert all(0 < row.peak_mb < 100 for row in cost.rows)


def test_the_command_prints_rows_and_names_missing_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fit_canvas", lambda pixels, _: fit_canvas(pixels, (128, 64)))
    monkeypatch.setattr(bench, "multiplies_bfloat16", lambda _: False)
    done = CliRunner().invoke(app, ["bench", "speedup", "--repeats", "1", "--budget", "0.5", "--json"])
    assert done.exit_code == 0
    keys = ["precision", "budget", "sparse", "plain", "ms", "processor_ms", "over_dense", "over_plain", "peak_mb"]
    assert list(json.loads(done.stdout)["rows"][0]) == keys
    text = CliRunner().invoke(app, ["bench", "speedup", "--repeats", "1", "--budget", "0.5"])
    assert "tokens" in text.stdout
    assert CliRunner().invoke(app, ["bench", "speedup", "--image", "missing.jpg"]).exit_code == 1
