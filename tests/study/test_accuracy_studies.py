"""The accuracy studies end to end on three rendered frames and a model of random weights, and what they print."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.detect.small_models import small_detector
from vgtok.cli import main
from vgtok.data.dataset import Dataset
from vgtok.detect.detector import Detector
from vgtok.detect.result import Result as DetectorResult
from vgtok.detect.result import Timings
from vgtok.detect.saving import save_detector
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections
from vgtok.show.plot import render_plot
from vgtok.study.affine import RUNGS
from vgtok.study.bands import _CLASSES, _printed_effect
from vgtok.study.cover import fine_cover
from vgtok.study.dense_epochs import checkpoints, step
from vgtok.study.paper import BUDGETS
from vgtok.study.paper_accuracy import AITOD_EFFECT, BANDS_EFFECT, GATED, TOP_HAT, TRAINED, ZERO_SHOT, ZERO_SHOT_EFFECT
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Read, Result
from vgtok.study.slicing import Slices, duplicated, touching
from vgtok.tokenize.images import read_image

STUDIES = ("ladder", "rank", "resolution", "scorers", "bands", "dense-epochs", "pareto", "published", "slicing")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Inputs:
    """One folder for all studies, so that they share cells."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("accuracy")
    save_detector(small_detector(), folder / "model")
    return Inputs(dataset, 1, out=folder / "out", models=(str(folder / "model"),), limit=3)


@pytest.fixture(scope="module")
def results(inputs: Inputs) -> dict[str, Result]:
    return {name: load_study(name).run(inputs) for name in STUDIES}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_and_draws(name: str, results: dict[str, Result]) -> None:
    result = results[name]
    assert result.rows
    assert all(list(row) == list(result.rows[0]) for row in result.rows)
    assert all(list(row) == list(result.paper_only[0]) for row in result.paper_only)
    json.dumps([list(result.rows), list(result.paper_only), list(result.notes), dict(result.also)])
    assert result.read == Read("visdrone", 3)
    assert len(result.also["frames"]) == 3
    assert any("3 of 5 images, evenly spread" in note for note in result.notes)
    assert any("another model and training" in note for note in result.notes)
    assert result.plot is not None
    picture = render_plot(result.plot)
    assert picture is not None
    assert picture.startswith(b"\x89PNG")


def test_the_ladder_holds_every_point_at_its_count(results: dict[str, Result]) -> None:
    rows = results["ladder"].rows
    assert len(rows) == 1 + len(RUNGS) + 5 * len(BUDGETS)
    assert rows[0]["retained"] == 1.0
    assert rows[0]["difference"] == 0.0
    for row in rows:
        if row["tokenizer"] in (TOP_HAT, GATED, "random"):
            assert row["retained"] == pytest.approx(float(row["setting"].rstrip("%")) / 100, abs=0.02)
        assert row["low"] <= row["high"]
    random = next(row for row in rows if row["tokenizer"] == "random" and row["setting"] == "40%")
    assert random["versus"] == GATED
    assert random["retained"] == next(
        row["retained"] for row in rows if row["tokenizer"] == GATED and row["setting"] == "40%"
    )


def test_a_detector_that_finds_what_is_read_finely_orders_the_ladder(
    tmp_path: Path, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = inputs.annotated
    objects = {read_image(path).tobytes(): dataset.annotations(number) for number, path in enumerate(dataset.images)}

    def on_canvas(self: Detector, image: Any, canvas: Any, tokens: Any, **_: Any) -> Any:
        truth = objects[image.tobytes()]
        seen = fine_cover(tokens, canvas.from_source(truth.boxes)) > 0.5
        known = [i for i in np.flatnonzero(seen) if dataset.names[truth.labels[i]] in self.names]
        labels = np.array([self.names.index(dataset.names[truth.labels[i]]) for i in known], dtype=np.int64)
        scores = np.linspace(0.9, 0.5, len(known)).astype(np.float32)
        return DetectorResult(truth.boxes[known], scores, labels, self.names, tokens, Timings(0, 0, 0), image)

    monkeypatch.setattr(Detector, "on_canvas", on_canvas)
    result = load_study("ladder").run(replace(inputs, out=tmp_path))
    at = {(row["tokenizer"], row["setting"]): row for row in result.rows}
    # Classes the model does not know are missed; of the others the dense grid misses nothing.
    assert 20 < at["dense", "100%"]["AP"] < 100
    assert at["random", "40%"]["AP"] < at[GATED, "40%"]["AP"] <= at["dense", "100%"]["AP"]
    assert at["random", "40%"]["difference"] == at["random", "40%"]["AP"] - at[GATED, "40%"]["AP"]
    assert at["random", "40%"]["low"] < 0
    kept = next(note for note in result.notes if note.startswith("dense AP"))
    assert f"keeps {at[GATED, '40%']['AP'] / at['dense', '100%']['AP']:.1%} of it" in kept


def test_studies_share_the_dense_cell(inputs: Inputs, results: dict[str, Result]) -> None:
    cells = [json.loads(path.read_text())["reader"] for path in (inputs.out / "cells").glob("*/cell.json")]
    assert len(cells) == len(set(cells))
    assert sum("budget=1.0" in reader and "(192, 128)" in reader for reader in cells) == 1
    dense = results["ladder"].rows[0]["AP"]
    assert results["bands"].rows[0]["points"] == dense
    assert results["slicing"].rows[0]["AP"] == dense
    assert results["dense-epochs"].rows[0]["AP"] == dense


def test_the_published_record_is_in_order_with_ours_in_its_place(results: dict[str, Result]) -> None:
    rows = results["published"].rows
    assert [row["AP"] for row in rows] == sorted((row["AP"] for row in rows), reverse=True)
    assert sum(row["source"] == "published" for row in rows) == 9
    assert sum(row["source"] == "measured" for row in rows) == 4
    missing = results["published"].paper_only
    assert len(missing) == 9 + 4
    assert {row["status"] for row in missing} == {"needs aitodv2"}


def test_the_resolutions_keep_the_ratio_of_the_model_s_canvas(results: dict[str, Result]) -> None:
    assert [row["canvas"] for row in results["resolution"].rows] == ["144x96", "192x128", "216x144", "240x160"]


def test_the_paper_s_figures_agree_with_each_other() -> None:
    for budget, effect in ZERO_SHOT_EFFECT.items():
        for metric, value in effect.items():
            cells = ZERO_SHOT["visdrone"]
            difference = cells[GATED, budget][metric] - cells[TOP_HAT, budget][metric]
            assert difference == pytest.approx(value, abs=0.0101)
    for metric, (gain, _) in BANDS_EFFECT.items():
        assert TRAINED[GATED][0.40][metric] - TRAINED[TOP_HAT][0.40][metric] == pytest.approx(gain, abs=0.0101)
    for column, name in ((2, TOP_HAT), (3, GATED)):
        mean = np.mean([values[column] for values in _CLASSES.values()])
        assert mean == pytest.approx(ZERO_SHOT["aitodv2"][name, 0.70]["APvt"], abs=0.006)
    assert all(values[3] - values[2] == pytest.approx(values[4], abs=0.0101) for values in _CLASSES.values())
    assert sum(values[0] for values in _CLASSES.values()) == 48_995


def test_gate_effects_on_aitod_are_the_printed_ones() -> None:
    cells = ZERO_SHOT["aitodv2"]
    for budget, effects in AITOD_EFFECT.items():
        for metric, value in effects.items():
            assert _printed_effect(True, (GATED, budget), metric) == value
            difference = cells[GATED, budget][metric] - cells[TOP_HAT, budget][metric]
            assert difference == pytest.approx(value, abs=0.0101)
    # The one where rounded cells are a hundredth off.
    assert _printed_effect(True, (GATED, 0.40), "APvt") == -0.46
    assert _printed_effect(True, (GATED, 0.40), "APm") is None
    assert _printed_effect(False, (GATED, 0.40), "APS") == 0.56
    assert _printed_effect(False, (TOP_HAT, 0.40), "APS") is None


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


def test_what_a_model_cannot_do_is_refused(tmp_path: Path, inputs: Inputs) -> None:
    save_detector(small_detector(), tmp_path / "bare", auxiliary=())
    with pytest.raises(InputError, match=r"--head: .* without its ATSS head"):
        load_study("rank").run(Inputs(inputs.dataset, 1, models=(str(tmp_path / "bare"),), head="atss"))
    save_detector(small_detector(names=("cat", "dog")), tmp_path / "pets")
    with pytest.raises(InputError, match="knows none of the classes of visdrone"):
        load_study("rank").run(Inputs(inputs.dataset, 1, models=(str(tmp_path / "pets"),)))
    with pytest.raises(InputError, match="--data"):
        load_study("rank").run(Inputs(None, 1))


def test_the_verb_takes_model_limit_and_head(
    tmp_path: Path, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inputs.dataset is not None
    data = f"visdrone:{inputs.dataset.images[0].parent.parent}"

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vgtok", "study", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.run()
        return int(stopped.value.code or 0), *capsys.readouterr()

    common = ("--data", data, "--model", inputs.models[0], "--out", tmp_path)
    code, out, err = run("published", *common, "--limit", 2, "--head", "atss", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["images"], document["head"], document["model"]) == (2, "atss", "model")
    with (tmp_path / "published.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + len(document["rows"])
    assert (tmp_path / "published.png").is_file()
    code, out, err = run("slicing", *common, "--limit", 2)
    assert code == 0, err
    assert "whole frame" in out
    code, _, err = run("affine", "--data", data, "--limit", 2, "--out", tmp_path)
    assert code == 1
    assert "study 'affine': does not take --limit; it takes --data" in err


def found(boxes: list[tuple[float, ...]], scores: list[float], labels: list[int]) -> Detections:
    return Detections(
        np.array(boxes, dtype=np.float64), np.array(scores), np.array(labels), np.zeros(len(scores), dtype=np.int64)
    )


def test_duplicates_and_seams_by_hand() -> None:
    detections = found(
        [(0, 0, 10, 10), (2, 2, 4, 4), (2, 2, 4, 4), (8, 8, 10, 10), (50, 0, 10, 10)],
        [0.5, 0.9, 0.4, 0.3, 0.2],
        [0, 0, 1, 0, 0],
    )
    # The whole box scores less than the fragment inside it, so it is the one that comes again.
    assert duplicated(detections).tolist() == [True, False, False, False, False]
    across, down = np.array([[45.0, 51.0]]), np.array([[100.0, 110.0]])
    assert touching(detections, across, down).tolist() == [False] * 4 + [True]
    assert touching(detections, np.zeros((0, 2)), np.zeros((0, 2))).tolist() == [False] * 5
    assert not duplicated(detections.take(np.zeros(5, dtype=np.bool_))).size


def test_seams_lie_where_the_slicer_s_tiles_overlap() -> None:
    slices = Slices("canvas", (2048, 1152), 640, 128)
    across, down = slices.seams(1080, 1920)
    np.testing.assert_allclose(across[0] * 2048 / 1920, (512, 640))
    np.testing.assert_allclose(across[-1] * 2048 / 1920, (1408, 1664))
    np.testing.assert_allclose(down[:, 0] * 1152 / 1080, (512,))
    assert Slices("photo", (2048, 1152)).seams(600, 640)[0].shape == (0, 2)


@pytest.mark.parametrize("of", ["canvas", "photo"])
def test_tiles_find_what_the_detector_finds_in_each(of: Any, inputs: Inputs) -> None:
    detector = small_detector()
    pixels = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    slices = Slices(of, (192, 128), tile=128, overlap=64)
    result = slices(detector, pixels, 500, "query")
    # Two tiles of 128 px: on the canvas each 8 x 8 cells of the frame's 12 x 8; enlarged to it, no larger.
    assert result.retained == pytest.approx(2 * 64 / 96)
    left = detector(pixels[:, :128], budget=1.0)
    best = left.boxes[left.scores.argmax()]
    assert np.abs(result.boxes - best).max(axis=1).min() < 1e-3 or result.scores[0] >= left.scores.max()
    assert len(result.boxes) <= 500
    assert (np.diff(result.scores) <= 0).all()
