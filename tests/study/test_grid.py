"""The grid: every cell and seed once, finished ones never again, effects and floor from the runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.small import small_recipe
from vgtok.cli import main
from vgtok.evaluate.statistics import pooled_deviation, seed_floor
from vgtok.study import grid as study
from vgtok.study.grid import Grid, measure, report
from vgtok.study.paper_accuracy import FUSED_GATED, GATED, SINGLE_PASS, TOP_HAT

WHOLE = Grid(small_recipe(), tuple(study.TOKENIZERS), (0.8, 0.7, 0.6, 0.4, 0.2), (0, 1, 2), finetune=1, scenes=2)
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
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("average.safetensors")}
    measure(replace(SMALL, scenes=3), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("average.safetensors")} == weights
    [cell] = tmp_path.glob("top-hat-0.40-0")
    assert sorted(path.name for path in cell.glob("scores-*.json")) == ["scores-2.json", "scores-3.json"]
    rendered = {int(place.name.split("-")[0]): place for place in tmp_path.glob("*-scenes")}
    assert {count: len(list(place.rglob("*.png"))) for count, place in rendered.items()} == {2: 2, 3: 3}


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
    grid = replace(SMALL, tokenizers=tuple(study.TOKENIZERS), budgets=(0.8, 0.7, 0.6, 0.4, 0.2))
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
