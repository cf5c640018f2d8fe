"""Pictures of detections: colors by name, labels and legend that hide no box, annotated boxes, side by side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vgtok import InputError
from vgtok.names import COCO, VISDRONE
from vgtok.show.boxes import TRUTH_COLOR, class_color, draw_detections, side_by_side

BOX = np.array([[60.0, 70.0, 90.0, 95.0]])
NONE = np.zeros((0, 4))
NO_LABELS = np.zeros(0, dtype=np.int64)


def test_outlines_have_the_color_of_their_class() -> None:
    picture = np.zeros((100, 200, 3), dtype=np.uint8)
    drawn = np.asarray(draw_detections(picture, 200, BOX, np.array([1]), ("car", "bus")))
    for x, y in ((60, 70), (90, 95), (75, 70)):
        assert tuple(drawn[y, x]) == class_color("bus")
    assert not drawn[80, 75].any()
    assert not picture.any(), "the caller's picture is not drawn on"
    assert drawn[:20, :30].any(), "the legend"


def test_an_enlarged_picture_scales_the_boxes() -> None:
    picture = np.zeros((300, 600, 3), dtype=np.uint8)
    drawn = np.asarray(draw_detections(picture, 200, BOX, np.array([0]), ("car",)))
    assert tuple(drawn[210, 180]) == class_color("car")


def test_nothing_found_is_the_picture_itself() -> None:
    picture = np.full((50, 60, 3), 7, dtype=np.uint8)
    drawn = draw_detections(picture, 60, NONE, NO_LABELS, ("car",))
    assert (np.asarray(drawn) == 7).all()


def test_a_class_has_one_color_in_all_models() -> None:
    picture = np.zeros((100, 200, 3), dtype=np.uint8)
    first = np.asarray(draw_detections(picture, 200, BOX, np.array([0]), ("car", "bus")))
    second = np.asarray(draw_detections(picture, 200, BOX, np.array([2]), ("bus", "ship", "Car")))
    assert (first[70, 60] == second[70, 60]).all()
    assert len({class_color(name) for name in {*COCO, *VISDRONE}}) == len({*COCO, *VISDRONE})
    assert class_color("minibus") == class_color("minibus") != class_color("wagon")


@settings(max_examples=40, deadline=None)
@given(
    boxes=st.lists(
        st.tuples(*[st.integers(0, 290), st.integers(0, 190), st.integers(3, 120), st.integers(3, 90)]), max_size=25
    ),
    seed=st.integers(0, 99),
)
def test_labels_and_legend_hide_no_box(boxes: list[tuple[int, int, int, int]], seed: int) -> None:
    corners = np.array([(x, y, min(x + w, 299), min(y + h, 199)) for x, y, w, h in boxes], dtype=np.float64).reshape(
        -1, 4
    )
    random = np.random.default_rng(seed)
    labels, scores = random.integers(0, 2, len(corners)), random.random(len(corners))
    blank = np.full((200, 300, 3), 90, dtype=np.uint8)
    names = ("pedestrian", "truck")
    drawn = np.asarray(draw_detections(blank, 300, corners, labels, names, scores=scores, tracks=labels + 1)).astype(
        int
    )
    # The same outlines without labels and without a legend.
    plain = blank.copy()
    inside = np.zeros(blank.shape[:2], dtype=bool)
    for (x0, y0, x1, y1), label in zip(corners.astype(int).tolist(), labels.tolist(), strict=True):
        plain[y0, x0 : x1 + 1] = plain[y1, x0 : x1 + 1] = class_color(names[label])
        plain[y0 : y1 + 1, x0] = plain[y0 : y1 + 1, x1] = class_color(names[label])
        inside[y0 : y1 + 1, x0 : x1 + 1] = True
    assert (drawn[inside] == plain[inside]).all()


def test_a_label_is_written_where_there_is_room() -> None:
    blank = np.zeros((200, 300, 3), dtype=np.uint8)
    one = np.asarray(draw_detections(blank, 300, np.array([[150.0, 100, 200, 140]]), np.array([0]), ("car",)))
    labeled = draw_detections(
        blank, 300, np.array([[150.0, 100, 200, 140]]), np.array([0]), ("car",), scores=np.ones(1)
    )
    rows, columns = np.nonzero((one != np.asarray(labeled)).any(axis=2))
    assert (rows.max(), columns.min() >= 150) == (pytest.approx(97, abs=4), True), "above the box"
    # Two boxes that fill the picture leave no room for anything.
    full = np.array([[0.0, 0, 299, 100], [0, 100, 299, 199]])
    crowded = np.asarray(draw_detections(blank, 300, full, np.array([0, 0]), ("car",), scores=np.ones(2)))
    assert set(map(tuple, crowded.reshape(-1, 3))) == {(0, 0, 0), class_color("car")}


def test_the_legend_moves_away_from_a_box_in_the_corner() -> None:
    blank = np.full((200, 300, 3), 90, dtype=np.uint8)
    corner = np.array([[0.0, 0.0, 80.0, 60.0]])
    drawn = np.asarray(draw_detections(blank, 300, corner, np.array([0]), ("car",)))
    assert (drawn[10:50, 10:70] == 90).all()
    assert (drawn[:, 100:] != 90).any() or (drawn[100:] != 90).any()


def test_annotated_boxes_are_dashed_and_named() -> None:
    blank = np.zeros((200, 300, 3), dtype=np.uint8)
    drawn = np.asarray(draw_detections(blank, 300, NONE, NO_LABELS, ("car",), truth=np.array([[150.0, 100, 250, 180]])))
    edge = drawn[100, 150:251]
    white = (edge == TRUTH_COLOR).all(axis=1)
    assert 0.3 < white.mean() < 0.8
    assert drawn[:40, :120].any(), "the legend counts them"


def test_pictures_stand_side_by_side_under_captions() -> None:
    first, second = Image.new("RGB", (120, 80), "red"), Image.new("RGB", (120, 80), "blue")
    sheet = side_by_side([first, second], ["dense: a caption that is far too long for the picture below it", "budget"])
    pixels = np.asarray(sheet)
    bar = sheet.height - 80
    assert (pixels[bar:, :120] == (255, 0, 0)).all()
    assert (pixels[bar:, -120:] == (0, 0, 255)).all()
    # The long caption does not run into the other picture's.
    assert not pixels[:bar, 120:-120].any()
    assert pixels[:bar, :120].any()
    with pytest.raises(InputError, match="differ in size"):
        side_by_side([first, Image.new("RGB", (90, 80))], ["a", "b"])
    with pytest.raises(InputError, match="2 pictures and 1 captions"):
        side_by_side([first, second], ["a"])
