"""The page of claims: verdicts follow from the files, and files of another shape are not judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from vgtok.show.claims import claims_page


def write(folder: Path, study: str, rows: list[dict[str, Any]], **more: Any) -> None:
    document = {"study": study, "images": 3, "ran_at": "2026-11-18T00:00:00", "rows": rows, **more}
    (folder / f"{study}.json").write_text(json.dumps(document))


def verdict_of(page: str, words: str) -> str:
    return next(line for line in page.splitlines() if words in line).split("**")[1]


def test_without_files_nothing_is_claimed(tmp_path: Path) -> None:
    page = claims_page(tmp_path)
    assert verdict_of(page, "Single-pass keeps") == "not tested here"
    assert "run `vgtok study affine`" in page
    (tmp_path / "affine.json").write_text("[]")
    write(tmp_path, "method", [{"nothing": 1}])
    assert verdict_of(claims_page(tmp_path), "Single-pass keeps") == "not tested here"
    assert verdict_of(claims_page(tmp_path), "Fig. 2") == "not tested here"


@pytest.mark.parametrize(("off", "verdict"), [(0.28, "holds"), (0.4, "does not hold")])
def test_a_bound_decides(tmp_path: Path, off: float, verdict: str) -> None:
    write(tmp_path, "affine", [{"off_points": off, "retained": 0.965, "paper_retained": 0.965}])
    page = claims_page(tmp_path)
    assert verdict_of(page, "Single-pass keeps") == verdict
    assert "`affine`, 3 images, 2026-11-18" in page


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        (((0.1, 0.5), (0.2, 0.9)), "holds"),
        (((0.1, 0.5), (-0.2, 0.9)), "holds in part"),
        (((-0.1, 0.5), (-0.2, 0.9)), "not resolved"),
        (((-0.3, -0.1), (-0.2, 0.9)), "does not hold"),
    ],
)
def test_intervals_decide_differences(tmp_path: Path, intervals: tuple[tuple[float, float], ...], verdict: str) -> None:
    differences = [
        {"tokenizer": "Top-hat + gate", "at": at, "metric": "AP", "versus": "Top-hat"}
        | {"difference": (low + high) / 2, "low": low, "high": high}
        for at, (low, high) in zip((0.4, 0.2), intervals, strict=True)
    ]
    write(tmp_path, "ladder", [], differences=differences)
    assert verdict_of(claims_page(tmp_path), "The gate gains AP") == verdict
