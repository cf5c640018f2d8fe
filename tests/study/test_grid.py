"""The grid: every cell and seed once, finished ones never again, effects and floor from the runs and from print."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.small import small_recipe
from vgtok import InputError
from vgtok.cli import main
from vgtok.data.convert import write_rendered
from vgtok.data.dataset import Dataset, open_annotated
from vgtok.data.synthetic import SceneConfig
from vgtok.detect.saving import save_detector
from vgtok.evaluate.resampling import pooled_deviation, seed_floor
from vgtok.study import grid as study
from vgtok.study.grid import Grid, measure, report
from vgtok.study.paper import FUSED_GATED, GATED, SINGLE_PASS, TOP_HAT, TRAINED
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs
from vgtok.train.loop import train
from vgtok.train.run_to_model import detector_from_run

WHOLE = Grid(small_recipe(), tuple(TRAINED), (0.8, 0.7, 0.6, 0.4, 0.2), (0, 1, 2), finetune=1, scenes=2)
SMALL = Grid(small_recipe(steps=2), (TOP_HAT, GATED), (0.4,), (0, 1), finetune=1, scenes=2)


def test_every_cell_is_finetuned_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure(SMALL, tmp_path)
    assert set(first) == {(TOP_HAT, 0.4), (GATED, 0.4)}
    assert all(len(runs) == 2 for runs in first.values())

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(study, "train", never)
    assert measure(SMALL, tmp_path) == first


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"AP": 1.0}', b'{"AP": 1.0, "AP50": "x"}'])
def test_damaged_scores_are_none(tmp_path: Path, data: bytes) -> None:
    assert study._known_scores(tmp_path / "scores.json") is None
    (tmp_path / "scores.json").write_bytes(data)
    assert study._known_scores(tmp_path / "scores.json") is None
    (tmp_path / "scores.json").write_text('{"AP": 1, "AP50": 2.5}')
    assert study._known_scores(tmp_path / "scores.json") == {"AP": 1.0, "AP50": 2.5}


def test_another_number_of_scenes_is_scored_anew_without_training(tmp_path: Path) -> None:
    measure(SMALL, tmp_path)
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("ema.safetensors")}
    measure(replace(SMALL, scenes=3), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("ema.safetensors")} == weights
    [cell] = tmp_path.glob("top-hat-0.40-0")
    assert sorted(path.name for path in cell.glob("scores-*.json")) == ["scores-2.json", "scores-3.json"]
    rendered = {int(place.name.split("-")[0]): place for place in tmp_path.glob("*-scenes")}
    assert {count: len(list(place.rglob("*.png"))) for count, place in rendered.items()} == {2: 2, 3: 3}


def test_on_data_a_model_is_finetuned_and_scored_on_images_kept_apart(tmp_path: Path) -> None:
    source = write_rendered(tmp_path / "data", range(5), 128, 128, SceneConfig())
    apart = tmp_path / "apart.txt"
    apart.write_text("\n".join(str(image) for image in open_annotated(source).images[:2]))
    recipe = small_recipe(data=source, validation="", held_out_file=str(apart), classes=(), steps=2)
    train(recipe, tmp_path / "run")
    save_detector(detector_from_run(tmp_path / "run"), tmp_path / "model")
    whole = Grid(recipe, (TOP_HAT,), (0.4,), (0, 1), finetune=1, scenes=2, model=str(tmp_path / "model"))
    scores = measure(whole, tmp_path / "grid")
    assert not (tmp_path / "grid" / "base").exists()
    result = report(whole, scores)
    assert "from model, finetuned for 1 steps, scored on 2 images kept apart" in result.notes[0]
    assert (result.read.data, result.read.images) == (source.partition(":")[0], 2)


def test_data_named_alone_are_no_training_split(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a training split"):
        load_study("grid").run(Inputs(dataset, 1, out=tmp_path, source="visdrone"))


def test_limit_is_the_number_of_scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Grid] = []

    def measured(grid: Grid, folder: Path) -> dict[tuple[str, float], list[dict[str, float]]]:
        asked.append(grid)
        return {cell: [{"AP": 1.0, "AP50": 2.0}] * len(grid.seeds) for cell in grid.cells()}

    monkeypatch.setattr(study, "measure", measured)
    monkeypatch.setattr("sys.argv", ["vgtok", "study", "grid", "--limit", "2", "--out", str(tmp_path), "--json"])
    with pytest.raises(SystemExit) as stopped:
        main.run()
    assert not stopped.value.code
    assert [grid.scenes for grid in asked] == [2]
    document = json.loads((tmp_path / "grid.json").read_text(encoding="utf-8"))
    assert (document["data"], document["images"]) == ("rendered scenes", 2)


def test_the_paper_s_gate_effects_are_the_printed_ones() -> None:
    scores = {cell: [{"AP": 10.0, "AP50": 20.0}] * 3 for cell in WHOLE.cells()}
    rows = report(WHOLE, scores).rows
    printed = {
        name: [row["paper_gate_adds"] for row in rows if row["tokenizer"] == name] for name in (GATED, FUSED_GATED)
    }
    assert printed == {GATED: [0.06, 0.12, 0.27, 0.49, 1.28], FUSED_GATED: [-0.01, 0.04, 0.30, 0.09, 0.20]}


def test_a_reversed_trend_is_said_in_a_sentence() -> None:
    gain = {0.8: 4.0, 0.7: 3.0, 0.6: 2.0, 0.4: 1.0, 0.2: -1.0}
    scores = {
        (name, budget): [{"AP": 10.0 + (gain[budget] if name == GATED else 0.0), "AP50": 20.0}] * 3
        for name, budget in WHOLE.cells()
    }
    [note] = [note for note in report(WHOLE, scores).notes if note.startswith(f"gate effect of {GATED} ")]
    assert "+4.00, +3.00, +2.00, +1.00, -1.00; paper +0.06, +0.12, +0.27, +0.49, +1.28" in note
    assert "it falls as the budget tightens here, the reverse of the paper's trend" in note
    mirrored = {cell: [{"AP": 20.0 - runs[0]["AP"], "AP50": 20.0}] * 3 for cell, runs in scores.items()}
    [note] = [note for note in report(WHOLE, mirrored).notes if note.startswith(f"gate effect of {GATED} ")]
    assert "it rises as the budget tightens here, as in the paper" in note


def test_single_pass_is_left_out_where_it_cannot_reach() -> None:
    grid = replace(SMALL, tokenizers=tuple(TRAINED), budgets=(0.8, 0.7, 0.6, 0.4, 0.2))
    assert len(grid.cells()) == 24
    assert (SINGLE_PASS, 0.2) not in grid.cells()


def test_effects_and_floor_come_from_the_runs() -> None:
    runs = {TOP_HAT: (10.0, 12.0), GATED: (13.0, 13.0)}
    scores = {(name, 0.4): [{"AP": value, "AP50": 2 * value} for value in values] for name, values in runs.items()}
    result = report(SMALL, scores)
    gated = next(row for row in result.rows if row["tokenizer"] == GATED)
    assert gated["gate_adds"] == pytest.approx(2.0)
    assert gated["paper_gate_adds"] == pytest.approx(0.49)
    floor = seed_floor(pooled_deviation([2**0.5, 0.0]), 2)
    assert gated["above_floor"] == (floor < 2.0)
    assert f"seed floor of AP: {floor:.2f}" in " ".join(result.notes)
    assert len(result.also["runs"]) == 4


def test_every_printed_value_lies_within_what_the_digits_allow() -> None:
    result = load_study("seeds").run(Inputs(None, 1))
    rows = {(row["quantity"], row["metric"]): row for row in result.rows}
    assert len(rows) == len(result.rows) == 22
    for row in rows.values():
        assert row["lowest"] <= row["paper"] <= row["highest"]
    for metric, pooled, floor in (("AP", 0.0974, 0.16), ("APS", 0.1342, 0.22)):
        assert abs(rows["pooled deviation of 24 cells", metric]["computed"] - pooled) < 5e-4
        assert round(rows["seed floor", metric]["computed"], 2) == floor
    assert any("rounding only determines it to between" in note for note in result.notes)
