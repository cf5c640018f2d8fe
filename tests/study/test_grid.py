"""The grid: every cell and seed once, finished ones never again, effects and floor from the runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.small import small_recipe
from vgtok.evaluate.statistics import pooled_deviation, seed_floor
from vgtok.study import grid as study
from vgtok.study.grid import Grid, measure, report
from vgtok.study.paper_accuracy import GATED, SINGLE_PASS, TOP_HAT

SMALL = Grid(small_recipe(steps=2), (TOP_HAT, GATED), (0.4,), (0, 1), finetune=1, scenes=2)


def test_every_cell_is_finetuned_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure(SMALL, tmp_path)
    assert set(first) == {(TOP_HAT, 0.4), (GATED, 0.4)}
    assert all(len(runs) == 2 for runs in first.values())

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(study, "train", never)
    assert measure(SMALL, tmp_path) == first


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
