"""The bench's two ways agree on files small enough for a test."""

from pathlib import Path

import pytest

from vgtok.bench.evaluation import _measured, _with_pycocotools, _with_vgtok, random_files


def test_both_ways_give_the_same_ap(tmp_path: Path) -> None:
    truth, results = random_files(tmp_path, 3, 100)
    ours, seconds, megabytes = _measured(_with_vgtok, truth, results)
    theirs, _, _ = _measured(_with_pycocotools, truth, results)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert 1 < ours < 99
    assert seconds > 0
    assert megabytes > 10
