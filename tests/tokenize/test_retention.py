"""Retention tables: inversion, files, and refusal of what is damaged."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.retention import RetentionCurve, RetentionTable, load_table, shipped_tables

CURVE = RetentionCurve("tophat", 0.2, (0.0, 50.0, 100.0), (0.8, 0.5, 0.1))
TABLE = RetentionTable("test", {"images": 3}, (CURVE,))


def damaged(**changes: object) -> str:
    document = TABLE.to_document()
    document["curves"] = [document["curves"][0] | changes]
    return json.dumps(document)


@given(st.floats(0.1, 0.8))
def test_inversion_undoes_the_curve(budget: float) -> None:
    assert np.interp(CURVE.percentile_for(budget), CURVE.percentiles, CURVE.retained) == pytest.approx(budget)


@pytest.mark.parametrize("budget", [0.05, 0.81])
def test_unreachable_budgets_name_the_range(budget: float) -> None:
    with pytest.raises(BudgetError, match=r"reach 0\.1000 to 0\.8000"):
        CURVE.percentile_for(budget)


def test_a_saved_table_loads_the_same(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "deep" / "table.json")
    assert load_table(tmp_path / "deep" / "table.json") == TABLE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a retention table"),
        ("[]", "not a retention table"),
        ('{"format": "vgtok-retention-table", "version": 99}', "version 99"),
        ('{"format": "vgtok-retention-table", "version": 1}', "damaged"),
        ("[" * 100_000, "nested too deeply"),
        (damaged(percentiles=["0", 50, 100]), "damaged"),
        (damaged(percentiles=[0, 50]), "damaged"),
        (damaged(percentiles=[50, 0, 100]), "damaged"),
        (damaged(retained=[0.8, 10**400, 0.1]), "damaged"),
        (damaged(retained=[0.8, float("nan"), 0.1]), "damaged"),
        (damaged(scorer=["tophat"]), "damaged"),
        (damaged(rank="0.2"), "damaged"),
        (json.dumps(TABLE.to_document() | {"curves": {}}), "damaged"),
        (json.dumps(TABLE.to_document() | {"measured_on": {"canvas": [10]}}), "damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(InputError, match=f"table.json: .*{message}"):
        load_table(tmp_path / "table.json")


def test_the_shipped_table_covers_the_papers_ranks() -> None:
    assert "visdrone" in shipped_tables()
    table = load_table("visdrone")
    assert table.measured_on["images"] == 548
    assert {(curve.scorer, curve.rank) for curve in table.curves} == {
        (scorer, rank) for scorer in ("tophat", "fused", "compact") for rank in (0.0, 0.05, 0.10, 0.20, 0.30, 0.40)
    }
    for curve in table.curves:
        assert len(curve.percentiles) == 32
        assert list(curve.retained) == sorted(curve.retained, reverse=True)
        # The gate alone caps what can be kept.
        assert curve.reachable[1] <= 1 - 0.9375 * curve.rank
