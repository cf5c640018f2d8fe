"""The ladder holds every point at its count, in the order a detector that sees fine tokens gives."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from vgtok.study import ladder
from vgtok.study.budgets import PERCENTILES
from vgtok.study.paper import BUDGETS, GATED, TOP_HAT
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Result


def test_the_ladder_holds_every_point_at_its_count(accuracy: Callable[[str], Result]) -> None:
    rows = accuracy("ladder").rows
    # Six tokenizers at every budget, three more gates at 40 and 20%.
    assert len(rows) == 1 + len(PERCENTILES) + 6 * len(BUDGETS) + 3 * 2
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


def test_differences_to_random_top_hat_and_dense_are_paired(sharp_sighted: Inputs) -> None:
    result = load_study("ladder").run(replace(sharp_sighted, limit=3))
    found = {(row["tokenizer"], row["at"], row["metric"], row["versus"]): row for row in result.also["differences"]}
    at = {(row["tokenizer"], row["setting"]): row for row in result.rows}
    one = found["Compact", 0.4, "AP", "random"]
    assert one["difference"] == pytest.approx(at["Compact", "40%"]["AP"] - at["random", "40%"]["AP"])
    assert one["significant"] == (one["low"] > 0 or one["high"] < 0)
    # Single-pass meets the others where it keeps as much.
    assert ("Single-pass", 80.0, "AP", TOP_HAT) in found
    assert ("Single-pass", 5.0, "AP", TOP_HAT) not in found


def test_budgets_that_decide_nothing_are_measured_on_a_part(
    sharp_sighted: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "_PART", 2)
    result = load_study("ladder").run(replace(sharp_sighted, limit=3))
    images = {(row["tokenizer"], row["setting"]): row["images"] for row in result.rows}
    assert images[GATED, "40%"] == images["Single-pass", "p 80"] == 3
    assert images[GATED, "80%"] == images["Single-pass", "p 40"] == 2
    assert [row["images"] for row in result.rows if row["tokenizer"] == "dense"] == [3, 2]
    assert any("on 2 images" in note for note in result.notes)
