"""Files written by earlier commits still load: models, training runs, retention tables.

Each folder is named after the commit whose code wrote it. `detections.json` holds what that code found with the model
in a rendered image, `resumed.json` the metrics of the two steps after the checkpoint of the run.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from vgtok.cli.main import app
from vgtok.data.synthetic import render_scene
from vgtok.detect import config as detect_config
from vgtok.detect.config import DetectorConfig
from vgtok.detect.saving import load_detector
from vgtok.tokenize.retention import load_table
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.loop import train
from vgtok.train.recipe import OLD_NAMES, Recipe, branch_recipe, read_recipe
from vgtok.train.run_folder import latest_checkpoint, load_checkpoint, read_metrics
from vgtok.train.run_to_model import detector_from_run

HERE = Path(__file__).parent


@pytest.fixture(params=["af7b1df", "416a7e1"])
def old(request: pytest.FixtureRequest) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield HERE / request.param
    torch.set_num_threads(threads)


@pytest.fixture
def run(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, whose recipe names a detector far smaller than the one of that name."""
    config = DetectorConfig.from_dict(json.loads((old / "run" / "model.json").read_text(encoding="utf-8")))
    monkeypatch.setitem(detect_config.DETECTORS, "co-detr-vit-tiny", config)
    shutil.copytree(old / "run", tmp_path / "run")
    return tmp_path / "run"


def test_a_detector_finds_what_it_found(old: Path) -> None:
    detector = load_detector(old / "detector")
    assert detector.table is not None
    expected = json.loads((old / "detections.json").read_text(encoding="utf-8"))
    pixels = render_scene(seed=3, width=320, height=192).pixels
    result = detector(pixels, budget=0.4, score_threshold=0.0, max_detections=5)
    assert len(result.tokens) == expected["tokens"]
    assert result.labels.tolist() == expected["labels"]
    np.testing.assert_allclose(result.scores, expected["scores"], rtol=1e-3)
    np.testing.assert_allclose(result.boxes, expected["boxes"], atol=0.05)


def test_a_retention_table_gives_a_tokenizer(old: Path) -> None:
    table = load_table(old / "retention.json")
    assert [(curve.scorer, curve.rank) for curve in table.curves] == [("tophat", 0.0), ("tophat", 0.2)]
    tokenizer = Tokenizer.calibrated(old / "retention.json", 0.5, rank=0.2, canvas=(320, 192))
    assert tokenizer.percentile == pytest.approx(table.curves[1].percentile_for(0.5))


def test_old_recipe_fields_have_new_names(old: Path) -> None:
    values: dict[str, Any] = json.loads((old / "run" / "recipe.json").read_text(encoding="utf-8"))
    assert set(OLD_NAMES.values()) <= {item.name for item in fields(Recipe)}
    recipe = read_recipe(old / "run" / "recipe.json").to_dict()
    for name, value in values.items():
        kept = recipe[OLD_NAMES.get(name, name)]
        assert (list(kept) if isinstance(kept, tuple) else kept) == value, name


def test_a_run_resumes_with_the_losses_it_would_have_had(old: Path, run: Path) -> None:
    train(replace(read_recipe(run / "recipe.json"), steps=5, checkpoint_every=1), run)
    metrics = read_metrics(run)
    assert [entry["step"] for entry in metrics] == [1, 2, 3, 4, 5]
    assert all(entry["samples"] == 2 * entry["step"] for entry in metrics)
    expected = json.loads((old / "resumed.json").read_text(encoding="utf-8"))
    for entry, before in zip(metrics[3:], expected, strict=True):
        assert entry["loss"] == pytest.approx(before["loss"], rel=1e-4)
        assert entry["learning_rate"] == pytest.approx(before["rate"])
    last = latest_checkpoint(run)
    assert last is not None
    assert last.name == "step-000005"
    assert not (run / "step-000003").exists()


def test_a_run_becomes_a_model(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["convert", "run", str(run), str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    state = load_detector(tmp_path / "model").model.state_dict()
    averaged = load_checkpoint(run / "step-000003").ema
    assert all(torch.equal(state[name], tensor) for name, tensor in averaged.items())
    assert detector_from_run(run / "step-000003").canvas == (128, 128)
    assert (tmp_path / "model" / "training.csv").read_text(encoding="utf-8").startswith("step,samples,seconds,")


def test_a_checkpoint_can_be_branched_off(run: Path, tmp_path: Path) -> None:
    recipe = branch_recipe(run / "step-000003", {"decay_steps": "1"})
    folder = train(recipe, tmp_path / "branch")
    assert folder is not None
    assert load_checkpoint(folder).step == 4
