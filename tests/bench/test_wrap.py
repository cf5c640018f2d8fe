"""`bench wrap` on a small encoder and a small detector: what it counts, and what the command prints."""

import json

import pytest

from tests.command_line import runner
from tests.hosts.small_hosts import CASES, randomized
from vgtok.bench import wrap


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = {"dinov2-small": ("dinov2", 280), "rf-detr": ("rf-detr", 224)}
    models = {key: (lambda name=name: randomized(CASES[name].build()), side) for key, (name, side) in builds.items()}
    monkeypatch.setattr(wrap, "MODELS", models)


def test_counts_equal_those_of_the_formula() -> None:
    [row] = wrap.measure_wrap(["dinov2-small"], 0.4, 1).rows
    assert row.dense_tokens == 400
    assert row.tokens == pytest.approx(160, abs=2)

    def flops(length: int, patches: int) -> float:
        # q, k, v, out and the MLP of four times the width; attention; the patch projection.
        return (3 * (2 * length * 12 * 48**2 + 4 * length**2 * 48) + 2 * patches * 588 * 48) / 1e9

    assert row.dense_gflops == pytest.approx(flops(401, 400), rel=1e-6)
    # A wrapped model also projects one black image, for its positions.
    assert row.gflops == pytest.approx(flops(row.tokens + 1, row.tokens + 400), rel=1e-6)
    assert row.realized == pytest.approx(row.speedup / row.flop_ratio)


def test_the_command_prints_both_models(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = runner(monkeypatch, capsys)
    code, text, error = run("bench", "wrap", "--repeats", 1, "--json")
    assert code == 0, error
    rows = json.loads(text)["rows"]
    assert [row["model"] for row in rows] == ["dinov2-small", "rf-detr"]
    assert all(row["flop_ratio"] > 1 and row["dense_ms"] > 0 for row in rows)
    code, text, error = run("bench", "wrap", "--repeats", 1, "--model", "rf-detr")
    assert code == 0, error
    assert "realized" in text
    code, _, error = run("bench", "wrap", "--model", "resnet")
    assert code == 1
    assert "'resnet' is not one of dinov2-small, rf-detr" in error
