"""The page over a results folder: every document in it, nothing else."""

import json
from pathlib import Path

from vgtok.show.tables import results_page


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
