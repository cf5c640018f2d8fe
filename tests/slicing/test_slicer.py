"""The slicer with a detector whose answers are known."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.slicing.scenes import SquareFinder, frame_with
from vgtok import Slicer
from vgtok.detect.result import Result
from vgtok.errors import BudgetError, InputError
from vgtok.overlap import iou

FIELD = [(x, y, 5) for x in range(430, 580, 20) for y in range(20, 180, 20)]
TILES: dict[str, Any] = {"tile": 224, "overlap": 24, "coarse": 160}


@given(st.lists(st.tuples(st.integers(0, 780), st.integers(0, 580)), max_size=12, unique=True))
@settings(max_examples=15, deadline=None)
def test_every_square_is_found_once_with_all_tiles(corners: list[tuple[int, int]]) -> None:
    apart = [c for n, c in enumerate(corners) if all(max(abs(c[0] - d[0]), abs(c[1] - d[1])) > 24 for d in corners[:n])]
    squares = [(x, y, 14) for x, y in apart]
    found = Slicer(SquareFinder(), budget=1.0, **(TILES | {"coarse": None}))(frame_with(squares))
    expected = np.array([(x, y, x + 14, y + 14) for x, y, _ in squares], dtype=float).reshape(-1, 4)
    assert len(found) == len(squares)
    assert not len(squares) or iou(expected, found.boxes).max(axis=1).min() > 0.999


def test_half_of_the_tiles_are_those_with_small_things() -> None:
    callback = SquareFinder(least=4)
    found = Slicer(callback, budget=0.25, guide="pixels", **TILES)(frame_with(FIELD))
    assert len(found) == len(FIELD)
    assert (found.read, len(found.layout)) == (3, 12)
    # The whole frame once at 160 px, then three tiles.
    assert callback.shown == [(120, 160, 3)] + [(found.layout.boxes[0, 3], found.layout.boxes[0, 2], 3)] * 3
    assert found.spent.megapixels == pytest.approx(sum(a * b for a, b, _ in callback.shown) / 1e6)
    rows = found.tiles()
    assert [row["tile"] for row in sorted(rows, key=lambda row: row["place"])][:3] == found.tiles_read.tolist()
    assert sum(row["read"] for row in rows) == 3
    assert rows[int(found.order[0])]["pixels"] == max(row["pixels"] for row in rows)


@pytest.mark.parametrize("guide", ["pixels", "scores", "both"])
def test_each_guide_leads_to_the_squares(guide: Any) -> None:
    found = Slicer(SquareFinder(least=1), budget=0.1, guide=guide, **(TILES | {"coarse": 400}))(frame_with(FIELD))
    assert found.guide == guide
    assert found.order[0] == 2


def test_large_objects_come_from_the_coarse_pass_whole() -> None:
    frame = frame_with([(100, 100, 400), (20, 20, 12)])
    found = Slicer(SquareFinder(), budget=1.0, **TILES)(frame)
    sides = np.sort(found.boxes[:, 2] - found.boxes[:, 0])
    np.testing.assert_allclose(sides, (12, 400), atol=6)


def test_no_tile_at_all_is_the_coarse_pass() -> None:
    callback = SquareFinder()
    found = Slicer(callback, budget=0.0, **TILES)(frame_with([(100, 100, 300)]))
    assert len(callback.shown) == 1
    np.testing.assert_allclose(found.boxes, [[100, 100, 400, 400]], atol=6)


def test_budgets_in_megapixels() -> None:
    frame = frame_with(FIELD)
    spent = Slicer(SquareFinder(), budget=0.5, **TILES)(frame).spent.megapixels
    again = Slicer(SquareFinder(), megapixels=spent + 1e-6, **TILES)(frame)
    assert again.read == 6
    assert Slicer(SquareFinder(), megapixels=spent - 1e-3, **TILES)(frame).read == 5
    assert Slicer(SquareFinder(), megapixels=100, **TILES)(frame).read == 12
    with pytest.raises(BudgetError, match="first pass"):
        Slicer(SquareFinder(), megapixels=0.01, **TILES)(frame)


def test_budgets_in_milliseconds_stop_before_the_next_tile_would_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that only passes runs of the detector count on: machines of tests are busy.
    finder = SquareFinder()
    monkeypatch.setattr("vgtok.slicing.slicer.time.perf_counter", lambda: 0.03 * len(finder.shown))
    frame = frame_with(FIELD)
    assert Slicer(finder, milliseconds=1, **TILES)(frame).read == 0
    found = Slicer(finder, milliseconds=170, **TILES)(frame)
    assert found.read == 4
    assert found.milliseconds == pytest.approx(150)
    assert Slicer(finder, milliseconds=1, guide="pixels", **(TILES | {"coarse": None}))(frame).read == 1
    assert Slicer(finder, milliseconds=1e6, **TILES)(frame).read == 12


def test_batches_give_what_single_tiles_give() -> None:
    frame, finder, sizes = frame_with(FIELD), SquareFinder(), []

    def batched(images: list[Any]) -> list[Any]:
        sizes.append(len(images))
        return [finder(image) for image in images]

    one = Slicer(SquareFinder(), budget=0.6, **TILES)(frame)
    many = Slicer(batched, budget=0.6, batch=4, **TILES)(frame)
    assert sizes == [1, 4, 3]
    np.testing.assert_array_equal(one.boxes, many.boxes)
    with pytest.raises(InputError, match="list of 1 answers"):
        Slicer(lambda images: [], batch=2, **TILES)(frame)


def test_answers_of_supervision_and_of_this_library(tmp_path: Any) -> None:
    supervision = pytest.importorskip("supervision")
    frame, finder = frame_with(FIELD), SquareFinder()

    def as_detections(image: Any) -> Any:
        boxes, scores, labels = finder(image)
        names = np.array(["square"] * len(labels))
        return supervision.Detections(
            xyxy=boxes.astype(np.float32), confidence=scores, class_id=labels + 1, data={"class_name": names}
        )

    found = Slicer(as_detections, **TILES)(frame)
    assert set(found.names) == {"square"}
    assert found.class_names == ("class 0", "square")
    assert len(found.to_supervision()) == len(found) == len(FIELD)
    assert found.to_coco("a")[0]["category_id"] == 2
    assert found.plot().size == (800, 600)

    def as_result(image: Any) -> Result:
        boxes, scores, labels = finder(image)
        return Result(boxes, scores.astype(np.float32), labels, ("thing",), None, None, image)  # type: ignore[arg-type]

    assert set(Slicer(as_result, **TILES)(frame).names) == {"thing"}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (None, "NoneType"),
        ((np.zeros((2, 4)), np.zeros(1), np.zeros(2)), "2 boxes, 1 scores"),
        ((np.zeros((2, 3)), np.zeros(2), np.zeros(2)), "shape"),
        ((np.array([[0, 0, np.nan, 1]]), np.ones(1), np.ones(1)), "NaN"),
        ((np.ones((1, 4)), np.ones(1), -np.ones(1)), "label"),
        ((["a"], ["b"], ["c"]), "no numbers"),
    ],
)
def test_other_answers_are_refused_with_a_sentence(answer: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Slicer(lambda image: answer, **TILES)(frame_with([]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 1.2},
        {"budget": -0.1},
        {"budget": 0.5, "megapixels": 1},
        {"guide": "random"},
        {"guide": "scores", "coarse": None},
        {"merge": "mean"},
        {"batch": 0},
        {"tile": 8},
        {"overlap": 500},
        {"coarse": 0},
        {"fine": -3},
        {"iou_threshold": 0},
    ],
)
def test_wrong_settings_are_refused_before_any_image(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Slicer(SquareFinder(), **wrong)
    with pytest.raises(InputError, match="callback"):
        Slicer(3)  # type: ignore[arg-type]


def test_nothing_read_is_refused() -> None:
    with pytest.raises(BudgetError, match="no coarse pass"):
        Slicer(SquareFinder(), budget=0.0, coarse=None)(frame_with([]))
