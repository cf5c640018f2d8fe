"""Every way of training is timed in one run, against the first."""

import json

import pytest
from typer.testing import CliRunner

from vgtok.bench import step as bench
from vgtok.cli.main import app


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ways_are_compared_in_one_run(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "best_precision", lambda: precision)
    cost = bench.measure_step("co-detr-vit-tiny", side=64, budget=1.0, repeats=2)
    ways = [(row.precision, row.losses, row.crops_per_pass) for row in cost.rows]
    fp32 = [("fp32", losses, crops) for losses in ("all", "auxiliary") for crops in (1, 4)]
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
    assert "auxiliary" in text.stdout
