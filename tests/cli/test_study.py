"""`vgtok study`: the list of studies, and errors in one line."""

import json
from pathlib import Path

from tests.cli.test_tokenize import vgtok


def test_the_map_lists_the_whole_paper(tmp_path: Path) -> None:
    done = vgtok("study", "--json", cwd=tmp_path)
    entries = json.loads(done.stdout)["entries"]
    labels = [entry["item"] for entry in entries]
    assert sum(label.startswith("Tab.") for label in labels) == 18
    assert sum(label.startswith("Fig.") for label in labels) == 4
    assert "inversion" in vgtok("study", cwd=tmp_path).stdout


def test_studies_that_cannot_run_say_why(tmp_path: Path) -> None:
    for words, message in (
        (["nonsense"], "no such study"),
        (["ladder", "--data", "visdrone:nowhere"], "nowhere"),
        (["inversion", "--model", "vgtok-tiny"], "--model"),
    ):
        done = vgtok("study", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
