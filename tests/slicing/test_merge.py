"""The merge of boxes of overlapping tiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.errors import InputError
from vgtok.overlap import iou, nms
from vgtok.slicing import cut_by_tile, merge_boxes

NONE = np.zeros(0, dtype=np.bool_)


def _boxes(seed: int, count: int, side: float = 60.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    corners = generator.uniform(0, 100, (count, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(5, side, (count, 2))], axis=1)
    return boxes, generator.random(count), generator.integers(0, 3, count), generator.integers(0, 4, count)


@given(st.integers(0, 10_000), st.integers(0, 60))
def test_nms_over_passes_of_one_box_each_is_plain_nms(seed: int, count: int) -> None:
    boxes, scores, labels, _ = _boxes(seed, count)
    merged = merge_boxes(boxes, scores, labels, np.arange(count), np.zeros(count, dtype=bool))
    assert merged.index.tolist() == nms(boxes, scores, labels, 0.5).tolist()
    np.testing.assert_array_equal(merged.boxes, boxes[merged.index])


@given(st.integers(0, 10_000), st.integers(0, 60))
def test_greedy_rule_one_box_at_a_time(seed: int, count: int) -> None:
    boxes, scores, labels, source = _boxes(seed, count)
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable").tolist():
        rivals = [k for k in kept if labels[k] == labels[place] and source[k] != source[place]]
        if not rivals or iou(boxes[[place]], boxes[rivals]).max() <= 0.5:
            kept.append(place)
    merged = merge_boxes(boxes, scores, labels, source, np.zeros(count, dtype=bool))
    assert merged.index.tolist() == kept


@given(st.integers(0, 10_000))
def test_fusion_keeps_as_many_boxes_each_within_the_hull_of_all(seed: int) -> None:
    boxes, scores, labels, source = _boxes(seed, 40)
    cut = np.zeros(40, dtype=bool)
    plain = merge_boxes(boxes, scores, labels, source, cut)
    fused = merge_boxes(boxes, scores, labels, source, cut, method="fusion")
    assert fused.index.tolist() == plain.index.tolist()
    assert (iou(fused.boxes, plain.boxes).diagonal() > 0.3).all()


def test_more_boxes_than_one_block() -> None:
    boxes, scores, labels, _ = _boxes(5, 900, side=20.0)
    merged = merge_boxes(boxes, scores, labels, np.arange(900), np.zeros(900, dtype=bool))
    assert merged.index.tolist() == nms(boxes, scores, labels, 0.5).tolist()


def test_boxes_of_one_pass_are_left_alone() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [1, 0, 11, 10]])
    assert (
        len(merge_boxes(boxes, np.array([0.9, 0.8]), np.zeros(2, int), np.zeros(2, int), np.zeros(2, bool)).index) == 2
    )


def test_fusion_is_the_mean_weighted_by_score() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [3.0, 0, 13, 10]])
    merged = merge_boxes(
        boxes, np.array([0.2, 0.6]), np.zeros(2, int), np.arange(2), np.zeros(2, bool), method="fusion"
    )
    np.testing.assert_allclose(merged.boxes, [[2.25, 0, 12.25, 10]])
    assert merged.scores.tolist() == [0.6]


def test_a_cut_box_gives_way_to_a_whole_one_even_with_a_better_score() -> None:
    boxes = np.array([[90.0, 0, 100, 20], [90, 0, 130, 20]])
    arguments = np.array([0.9, 0.3]), np.zeros(2, int), np.arange(2), np.array([True, False])
    assert merge_boxes(boxes, *arguments).index.tolist() == [1]


def test_a_cut_box_stays_where_no_whole_one_covers_it() -> None:
    boxes = np.array([[90.0, 0, 100, 20], [98, 0, 130, 20]])
    arguments = np.array([0.9, 0.3]), np.zeros(2, int), np.arange(2), np.array([True, False])
    assert merge_boxes(boxes, *arguments).index.tolist() == [0, 1]


def test_borders_inside_the_frame_cut_and_its_own_do_not() -> None:
    boxes = np.array([[0.0, 10, 50, 50], [60, 10, 99.5, 50], [60, 0, 80, 50], [50, 80, 60, 100]])
    assert cut_by_tile(boxes, (0, 0, 100, 100), (100, 200)).tolist() == [False, True, False, False]
    assert cut_by_tile(boxes, (0, 0, 100, 100), (200, 100)).tolist() == [False, False, False, True]


def test_nothing_merges_to_nothing() -> None:
    empty = np.zeros(0)
    merged = merge_boxes(np.zeros((0, 4)), empty, empty.astype(int), empty.astype(int), NONE, method="fusion")
    assert merged.boxes.shape == (0, 4)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="nms, fusion"):
        merge_boxes(np.zeros((0, 4)), NONE, NONE, NONE, NONE, method="soft")  # type: ignore[arg-type]
