"""Checkpoints of a run in their order; the overfit study in miniature: losses fall, it resumes, and names what rose."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.detect.small_models import SMALL
from vgtok.data.dataset import open_annotated
from vgtok.detect.config import DetectorConfig
from vgtok.errors import InputError
from vgtok.show.plot import render_plot
from vgtok.study import training
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs
from vgtok.study.training import checkpoints, learn, read_log, risen, scenes, step


def test_a_run_folder_stands_for_its_checkpoints_in_order(tmp_path: Path, inputs: Inputs) -> None:
    [model] = inputs.models
    for name in ("step-1000", "step-200"):
        shutil.copytree(model, tmp_path / "run" / "checkpoints" / name)
    found = checkpoints((str(tmp_path / "run"), model))
    assert [Path(name).name for name in found] == ["step-200", "step-1000", "model"]
    assert [step(name) for name in found] == [200, 1000, None]
    with pytest.raises(InputError, match="neither a saved model nor a folder that holds any"):
        checkpoints((str(tmp_path),))


def test_several_models_are_for_dense_epochs_alone(inputs: Inputs) -> None:
    twice = Inputs(inputs.dataset, 1, out=inputs.out, models=inputs.models * 2, limit=3)
    assert len(load_study("dense-epochs").run(twice).rows) == 2
    with pytest.raises(InputError, match="--model: this study runs one model, not 2"):
        load_study("rank").run(twice)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model on two scenes, evaluated every four steps up to twelve."""

    def configuration(name: str, **changes: Any) -> DetectorConfig:
        return replace(SMALL, **changes)

    monkeypatch.setattr("vgtok.train.model.detector_configuration", configuration)
    recipe = replace(
        training._OVERFIT, learning_rate=3e-3, warmup_steps=1, evaluate_every=4, checkpoint_every=4, evaluate_images=2
    )
    for name, value in (("_OVERFIT", recipe), ("_STEPS", 12), ("_SCENES", 2)):
        monkeypatch.setattr(training, name, value)


@pytest.mark.usefixtures("small")
def test_both_runs_learn_and_are_logged_and_plotted(tmp_path: Path) -> None:
    result = load_study("overfit").run(Inputs(None, workers=1, out=tmp_path))
    assert [(row["heads"], row["steps"]) for row in result.rows] == [("auxiliary", 12), ("query-only", 12)]
    for row in result.rows:
        assert 0 <= row["ap50"] <= 1
        assert row["last_loss"] < row["first_loss"]
    assert any(name.startswith("roi/") for name in result.also["logs"]["auxiliary"][0]["losses"])
    assert not any(name.startswith(("roi", "atss")) for name in result.also["logs"]["query-only"][0]["losses"])
    assert result.plot is not None
    assert render_plot(result.plot)


@pytest.mark.usefixtures("small")
def test_a_stopped_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = scenes(tmp_path / "scenes")
    recipe = replace(training._OVERFIT, data=data, validation=data)
    monkeypatch.setattr(training, "_STEPS", 4)
    first = learn(recipe, tmp_path / "run")
    monkeypatch.setattr(training, "_STEPS", 8)
    second = learn(recipe, tmp_path / "run")
    assert [entry["step"] for entry in second] == [4, 8]
    assert second[0] == first[0]
    assert second[1]["seconds"] > first[0]["seconds"]
    assert second == read_log(tmp_path / "run")


def test_eight_scenes_have_no_slivers(tmp_path: Path) -> None:
    images = open_annotated(scenes(tmp_path))
    assert len(images.images) == 8
    for index in range(8):
        boxes = images.annotations(index).boxes
        assert len(boxes) >= 3
        assert np.min(boxes[:, 2:] - boxes[:, :2]) >= 4


def test_a_run_ends_at_the_goal() -> None:
    assert not training.done([])
    assert not training.done([{"ap50": 0.94, "step": 100, "seconds": 60.0}])
    assert training.done([{"ap50": 0.95, "step": 100, "seconds": 60.0}])
    assert training.done([{"ap50": 0.1, "step": 1500, "seconds": 60.0}])
    assert training.done([{"ap50": 0.1, "step": 100, "seconds": 1800.0}])


def test_risen_names_the_losses_that_did_not_fall() -> None:
    log = [{"losses": {"a": 1.0, "b": 1.0}}, {"losses": {"a": 0.5, "b": 1.0}}]
    assert risen(log) == ["b"]
    assert risen([]) == []
