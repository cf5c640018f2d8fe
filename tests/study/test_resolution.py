"""Resolutions keep the ratio of the canvas, and the published record is in order."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.study.conftest import only
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Read, Result


def test_the_published_record_is_in_order_with_ours_in_its_place(accuracy: Callable[[str], Result]) -> None:
    rows = accuracy("published").rows
    assert [row["AP"] for row in rows] == sorted((row["AP"] for row in rows), reverse=True)
    assert sum(row["source"] == "published" for row in rows) == 9
    assert sum(row["source"] == "measured" for row in rows) == 4
    missing = accuracy("published").paper_only
    assert len(missing) == 9 + 4
    assert {row["status"] for row in missing} == {"needs aitodv2"}


def test_the_resolutions_keep_the_ratio_of_the_model_s_canvas(accuracy: Callable[[str], Result]) -> None:
    assert [row["canvas"] for row in accuracy("resolution").rows] == ["144x96", "192x128", "216x144", "240x160"]


def test_published(sharp_sighted: Inputs) -> None:
    result = load_study("published").run(replace(sharp_sighted, limit=3))
    assert result.read == Read("visdrone", 3)
    found = {row["method"]: row["AP"] for row in result.rows if row["source"] == "measured"}
    # Classes the model does not know are missed; of the others the dense grid misses nothing.
    assert found["model, 100%"] == 25.0
    assert found["model, 80%"] == pytest.approx(15.1, abs=1.5)
    assert found["model, 40%"] == pytest.approx(5.2, abs=1.5)
    assert only(list(result.rows), method="VGTok, 40%")["AP"] == 44.22


def test_resolution(sharp_sighted: Inputs) -> None:
    result = load_study("resolution").run(sharp_sighted)
    assert result.read == Read("visdrone", 5)
    rows = list(result.rows)
    assert [row["AP_100"] for row in rows] == [25.0] * 4
    assert only(rows, canvas="192x128")["AP_70"] == pytest.approx(21.7, abs=1)
    assert only(rows, canvas="240x160")["AP_70"] == pytest.approx(23.0, abs=1)
    for row in rows:
        assert row["gap"] == pytest.approx(row["AP_100"] - row["AP_70"])
        # Single-pass at percentile 40; a canvas of so few cells cannot come nearer.
        assert row["retained"] == pytest.approx(0.70, abs=0.06)
