"""The export benchmark on the smallest input: every figure present, and both sides in agreement."""

import json

import pytest
from typer.testing import CliRunner

from tests.export.small_models import WINDOWED_VIT, traceable_detector
from vgtok.bench import export as bench
from vgtok.cli.main import app


def test_the_command_compares_both(monkeypatch: pytest.MonkeyPatch) -> None:
    config = traceable_detector("vit-tiny", WINDOWED_VIT).model.config
    monkeypatch.setattr(bench, "detector_configuration", lambda name: config)
    options = ["--size", "192x128", "--frames", "2", "--repeats", "1", "--json"]
    run = CliRunner().invoke(app, ["bench", "export", *options])
    assert run.exit_code == 0, run.output
    cost = json.loads(run.stdout)
    assert [stage["stage"] for stage in cost["stages"]] == ["encoder", "head", "whole"]
    for stage in cost["stages"]:
        assert stage["ratio"] == pytest.approx(stage["torch_ms"] / stage["onnx_ms"])
    assert max(cost[f"{what}_difference"] for what in ("features", "scores", "boxes")) < 1e-4
    assert (cost["width"], cost["height"], cost["tokens"]) == (192, 128, 39)
