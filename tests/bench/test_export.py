"""The export benchmark on the smallest input: every figure present, and both sides in agreement."""

import json
from collections.abc import Mapping

import pytest
from typer.testing import CliRunner

from tests.export.small_models import WINDOWED_VIT, traceable_detector
from vgtok.bench import export as bench
from vgtok.cli.main import app


def test_the_command_compares_both(monkeypatch: pytest.MonkeyPatch) -> None:
    config = traceable_detector("vit-tiny", WINDOWED_VIT).model.config
    monkeypatch.setattr(bench, "detector_configuration", lambda name: config)
    options = ["--size", "192x128", "--frames", "2", "--repeats", "5", "--json"]
    run = CliRunner().invoke(app, ["bench", "export", *options])
    assert run.exit_code == 0, run.output
    cost = json.loads(run.stdout)
    assert [stage["stage"] for stage in cost["stages"]] == ["encoder", "head", "whole"]
    assert all(stage[name] > 0 for stage in cost["stages"] for name in ("torch_ms", "onnx_ms"))
    # The whole holds the encoder, on either side.
    encoder, _, whole = cost["stages"]
    assert all(encoder[name] < whole[name] for name in ("torch_ms", "onnx_ms"))
    assert max(cost[f"{what}_difference"] for what in ("features", "scores", "boxes")) < 1e-4
    assert (cost["width"], cost["height"], cost["tokens"]) == (192, 128, 39)


def test_times_are_per_frame_and_the_ratio_is_torch_over_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    config = traceable_detector("vit-tiny", WINDOWED_VIT).model.config
    monkeypatch.setattr(bench, "detector_configuration", lambda name: config)

    def medians(functions: Mapping[str, object], repeats: int) -> dict[str, float]:
        both = {f"{library} {stage}" for library in ("torch", "onnx") for stage in bench.STAGES}
        assert set(functions) == both | {"int8 whole"}
        return {name: {"torch": 30.0, "onnx": 20.0, "int8": 10.0}[name.split()[0]] for name in functions}

    monkeypatch.setattr(bench, "interleaved_medians", medians)
    cost = bench.measure_export("any", (192, 128), 0.4, frames=2, repeats=1)
    for stage in cost.stages:
        assert (stage.torch_ms, stage.onnx_ms, stage.ratio) == (15.0, 10.0, 1.5)
    assert (cost.int8_ms, cost.int8_ratio) == (5.0, 2.0)
    assert 0 < cost.int8_file_mb < cost.file_mb
