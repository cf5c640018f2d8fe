"""The seed floor from the printed cells, and where rounding stops it."""

from vgtok.study.registry import load_study
from vgtok.study.result import Inputs


def test_every_printed_value_lies_within_what_the_digits_allow() -> None:
    result = load_study("seeds").run(Inputs(None, 1))
    rows = {(row["quantity"], row["metric"]): row for row in result.rows}
    assert len(rows) == len(result.rows) == 22
    for row in rows.values():
        assert row["lowest"] <= row["paper"] <= row["highest"]
    for metric, pooled, floor in (("AP", 0.0974, 0.16), ("APS", 0.1342, 0.22)):
        assert abs(rows["pooled deviation of 24 cells", metric]["computed"] - pooled) < 5e-4
        assert round(rows["seed floor", metric]["computed"], 2) == floor
    assert any("two digits fix it only between" in note for note in result.notes)
