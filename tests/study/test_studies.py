"""Studies on a few rendered frames in VisDrone's layout: every one runs, and its parts equal brute force."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok import Tokenizer
from vgtok.data.dataset import Dataset, open_dataset
from vgtok.data.synthetic import render_scene
from vgtok.errors import InputError
from vgtok.show.plot import render_plot
from vgtok.study.cover import RandomGate, fine_cover
from vgtok.study.nodes import area_under_roc, cells_to_nearest, nodes_with_objects
from vgtok.study.registry import ENTRIES, STUDIES, load_study
from vgtok.study.result import Inputs
from vgtok.tokenize.geometry import Extent

# Studies that run a network have small tests of their own.
NETWORKS = {"fidelity", "overfit"} | {entry.study for entry in ENTRIES if entry.model == "detector"}


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in NETWORKS])
def test_every_study_runs_and_draws(name: str, dataset: Dataset) -> None:
    result = load_study(name).run(Inputs(dataset, workers=1))
    assert result.rows
    assert all(list(row) == list(result.rows[0]) for row in result.rows)
    if result.plot is not None:
        picture = render_plot(result.plot)
        assert picture is not None
        assert picture.startswith(b"\x89PNG")
    else:
        assert all(image.width > 1000 for image in result.pictures.values())


def test_every_study_is_in_the_map() -> None:
    assert set(STUDIES) == {entry.study for entry in ENTRIES}


def test_picture_studies_need_no_data() -> None:
    result = load_study("teaser").run(Inputs(None, workers=1))
    assert {row["quantity"]: row["measured"] for row in result.rows}["objects"] > 100


def test_tables_of_the_paper_refuse_other_data(tmp_path: Path, dataset: Dataset) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((64, 64, 3), np.uint8))
    folder = open_dataset(str(tmp_path))
    for name in ("inversion", "cover"):
        with pytest.raises(InputError, match="annotated"):
            load_study(name).run(Inputs(folder, workers=1))
    other = replace(dataset, name="elsewhere")  # type: ignore[type-var]
    with pytest.raises(InputError, match="the paper prints this table for visdrone and aitodv2, not for 'elsewhere'"):
        load_study("inversion").run(Inputs(other, workers=1))
    with pytest.raises(InputError, match="--data"):
        load_study("affine").run(Inputs(None, workers=1))


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_area_under_roc_equals_mann_whitney(seed: int, positives: int, negatives: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 8, positives + negatives).astype(np.float32)
    expected = scipy.stats.mannwhitneyu(values[:positives], values[positives:]).statistic / (positives * negatives)
    assert area_under_roc(values[:positives], values[positives:]) == pytest.approx(expected)


boxes_strategy = st.lists(
    st.tuples(st.floats(0, 190), st.floats(0, 120), st.floats(0.5, 60), st.floats(0.5, 60)), min_size=1, max_size=5
)


@given(boxes_strategy, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_fine_cover_equals_counting_small_squares(sizes: list[tuple[float, ...]], seed: int) -> None:
    boxes = np.array([(round(x), round(y), round(x) + -(-w // 1), round(y) + -(-h // 1)) for x, y, w, h in sizes])
    boxes = np.minimum(boxes, [200, 150, 200, 150])
    boxes = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
    image = np.random.default_rng(seed).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    tokens = Tokenizer(percentile=60, canvas="native")(image)
    fine = np.zeros((150, 200))
    for x0, y0, x1, y1 in tokens.boxes[tokens.sizes == 16]:
        fine[y0:y1, x0:x1] = 1
    expected = [fine[int(y0) : int(y1), int(x0) : int(x1)].mean() for x0, y0, x1, y1 in boxes]
    np.testing.assert_allclose(fine_cover(tokens, boxes.astype(np.float64)), expected, atol=1e-9)


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


def test_the_random_gate_leaves_the_count_alone() -> None:
    image = render_scene(seed=3, width=512, height=320).pixels
    counts = {
        len(Tokenizer(percentile=60, gate=gate, canvas="native")(image)) for gate in ("lambda_min", RandomGate(4))
    }
    assert len(counts) == 1
