"""The gate on nodes: one number of each study, and the parts by hand and against brute force."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.study.conftest import only, rows_of
from vgtok.data.dataset import Dataset
from vgtok.study import gates
from vgtok.study.gates import area_under_roc, cells_to_nearest, nodes_with_objects
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Read
from vgtok.tokenize.geometry import Extent


def test_auroc(dataset: Dataset) -> None:
    rows = rows_of("auroc", dataset)
    reading = "5 px Sobel, 33 px window (fits this table)"
    assert only(rows, reading=reading, level=32, budget=0.7)["measured"] == pytest.approx(0.738, abs=0.01)
    assert only(rows, reading=reading, level=64, budget=0.2)["measured"] == pytest.approx(0.774, abs=0.01)
    score = only(rows, statistic="the score itself", level=32, budget=0.7)
    assert score["paper"] is None
    assert 0.5 < score["measured"] < 0.8
    clutter = only(rows, statistic="clutter fraction", level=32, budget=0.2)
    assert clutter["measured"] == pytest.approx(0.647, abs=0.01)


def test_coarsened(dataset: Dataset) -> None:
    rows = rows_of("coarsened", dataset)
    row = only(rows, budget=0.4, reading="half size, 3 px Sobel, 8 px windows (shipped)")
    assert row["fires_on"] == pytest.approx(2.11, abs=0.05)
    assert row["frees"] == pytest.approx(6.32, abs=0.1)
    assert row["on_object"] == pytest.approx(27.4, abs=1)
    # How many nodes fire does not depend on the reading, where they lie does.
    paper = only(rows, budget=0.4, reading="5 px Sobel, 33 px window (fits this table)")
    assert paper["frees"] == row["frees"]
    assert paper["on_object"] < row["on_object"]
    bins = ("on_object", "one_node", "two_three_nodes", "farther")
    assert all(sum(row[name] for name in bins) == pytest.approx(100, abs=0.05) for row in rows)


@pytest.mark.parametrize("name", ["auroc", "coarsened"])
def test_studies_of_the_first_images_count_those(name: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "IMAGES", 2)
    assert load_study(name).run(Inputs(dataset, workers=1)).read == Read("visdrone", 2)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_area_under_roc_equals_mann_whitney(seed: int, positives: int, negatives: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 8, positives + negatives).astype(np.float32)
    expected = scipy.stats.mannwhitneyu(values[:positives], values[positives:]).statistic / (positives * negatives)
    assert area_under_roc(values[:positives], values[positives:]) == pytest.approx(expected)


def test_nodes_with_objects_and_gaps_by_hand() -> None:
    boxes = np.array([[33.0, 10.0, 64.0, 20.0]])
    holds = nodes_with_objects(boxes, Extent(128, 128), 32)
    assert holds.tolist() == [[False, True, False, False]] + [[False] * 4] * 3
    corners = np.array([[32, 0], [0, 0], [64, 0], [96, 64]])
    gaps = cells_to_nearest(corners, boxes, 32)
    assert gaps[0] == 0
    assert gaps[1] == pytest.approx(1 / 16)
    assert 0 < gaps[2] < 1e-6
    assert gaps[3] == pytest.approx(44 / 16)
    assert np.isinf(cells_to_nearest(corners, np.zeros((0, 4)), 32)).all()
