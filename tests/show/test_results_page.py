"""The page over a results folder: every document in it, nothing else."""

import json
from pathlib import Path

import pytest

from vgtok.show.results_page import results_page
from vgtok.study.registry import last_run


def test_studies_and_benchmarks_of_a_folder_on_one_page(tmp_path: Path) -> None:
    study = {
        "study": "some",
        "title": "A table",
        "data": "visdrone",
        "images": 3,
        "ran_at": "2026-01-02T03:04:05",
        "vgtok": "1",
        "rows": [{"name": "one", "paper_value": None, "value": 0.25}],
        "notes": ["worth knowing"],
    }
    (tmp_path / "some.json").write_text(json.dumps(study))
    (tmp_path / "some.png").write_bytes(b"")
    (tmp_path / "bench-it.json").write_text(json.dumps({"ratio": 1.5, "rows": [{"budget": 0.4}]}))
    page = results_page(tmp_path)
    assert "## some\n\nA table (visdrone, 3 images, 2026-01-02, vgtok 1)." in page
    assert "| name | paper value | value |\n|---|---|---|\n| one | - | 0.25 |" in page
    assert "- worth knowing" in page
    assert "![A table](some.png)" in page
    assert "## bench-it\n\n| quantity | value |\n|---|---|\n| ratio | 1.5 |\n\n| budget |\n|---|\n| 0.4 |" in page


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"[" * 100_000, b"{}", b'{"study": "some"}', b'{"rows": []}', b'{"rows": [1]}']
)
def test_what_holds_no_results_is_left_out(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bench-it.json").write_text(json.dumps({"ratio": 1.5}))
    (tmp_path / "some.json").write_bytes(data)
    assert results_page(tmp_path).count("\n## ") == 1
    assert last_run("some", tmp_path) is None
