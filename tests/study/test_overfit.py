"""The overfit study in miniature: it logs, stops, goes on where it stopped, and says which losses rose."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.detect.small_models import SMALL
from vgtok.data.synthetic import NAMES
from vgtok.detect.config import DetectorConfig
from vgtok.detect.model import CoDetr
from vgtok.show.plot import render_plot
from vgtok.study import overfit
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    def configuration(name: str, **changes: Any) -> DetectorConfig:
        return replace(SMALL, **changes)

    monkeypatch.setattr(overfit, "detector_configuration", configuration)
    for name, value in (("_EVERY", 1), ("_STEPS", 2), ("_SCENES", 2)):
        monkeypatch.setattr(overfit, name, value)


def test_both_runs_are_logged_and_plotted(tmp_path: Path) -> None:
    result = load_study("overfit").run(Inputs(None, workers=1, out=tmp_path))
    assert [(row["heads"], row["steps"]) for row in result.rows] == [("auxiliary", 2), ("query-only", 2)]
    assert all(0 <= row["ap50"] <= 1 for row in result.rows)
    assert any(name.startswith("roi/") for name in result.also["logs"]["auxiliary"][0]["losses"])
    assert not any(name.startswith(("roi", "atss")) for name in result.also["logs"]["query-only"][0]["losses"])
    assert result.plot is not None
    assert render_plot(result.plot)


def test_a_stopped_run_goes_on_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons = overfit.scenes()
    monkeypatch.setattr(overfit, "_STEPS", 1)
    first = overfit.train("auxiliary", ("roi", "atss"), lessons, tmp_path)
    monkeypatch.setattr(overfit, "_STEPS", 3)
    second = overfit.train("auxiliary", ("roi", "atss"), lessons, tmp_path)
    assert [entry["step"] for entry in second.log] == [1, 2, 3]
    assert second.log[0] == first.log[0]
    assert second.seconds > first.seconds


def test_a_model_that_knows_the_scenes_has_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons = overfit.scenes()
    model = CoDetr(replace(SMALL, names=NAMES))

    def predict(*_: Any) -> list[tuple[torch.Tensor, ...]]:
        return [
            (lesson.target["boxes"], torch.full((len(lesson.target["labels"]),), 0.9), lesson.target["labels"])
            for lesson in lessons
        ]

    monkeypatch.setattr(model, "predict", predict)
    assert overfit.average_precision(model, lessons) == pytest.approx(1.0)


def test_risen_names_the_losses_that_did_not_fall() -> None:
    log = [{"losses": {"a": 1.0, "b": 1.0}}, {"losses": {"a": 0.5, "b": 1.0}}]
    assert overfit.risen(log) == ["b"]
    assert overfit.risen([]) == []


def test_the_rate_warms_up_and_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overfit, "_STEPS", 1500)
    rates = [overfit.rate(step) for step in range(0, 1501, 50)]
    assert rates[0] < rates[2] > rates[10] > rates[-1] > 0
