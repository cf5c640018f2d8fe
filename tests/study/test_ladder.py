"""The ladder holds every point at its count, in the order a detector that sees fine tokens gives."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from vgtok.study.budgets import PERCENTILES
from vgtok.study.paper import BUDGETS, GATED, TOP_HAT
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Result


def test_the_ladder_holds_every_point_at_its_count(accuracy: Callable[[str], Result]) -> None:
    rows = accuracy("ladder").rows
    assert len(rows) == 1 + len(PERCENTILES) + 5 * len(BUDGETS)
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


def test_a_detector_that_finds_what_is_read_finely_orders_the_ladder(sharp_sighted: Inputs) -> None:
    result = load_study("ladder").run(replace(sharp_sighted, limit=3))
    at = {(row["tokenizer"], row["setting"]): row for row in result.rows}
    # Classes the model does not know are missed; of the others the dense grid misses nothing.
    assert 20 < at["dense", "100%"]["AP"] < 100
    assert at["random", "40%"]["AP"] < at[GATED, "40%"]["AP"] <= at["dense", "100%"]["AP"]
    assert at["random", "40%"]["difference"] == at["random", "40%"]["AP"] - at[GATED, "40%"]["AP"]
    assert at["random", "40%"]["low"] < 0
    kept = next(note for note in result.notes if note.startswith("dense AP"))
    assert f"keeps {at[GATED, '40%']['AP'] / at['dense', '100%']['AP']:.1%} of it" in kept
