"""Boxes land where they belong, also on an enlarged picture, and the legend names what is there."""

import numpy as np

from vgtok.show.overlay import class_colour, draw_detections

BOX = np.array([[60.0, 70.0, 90.0, 95.0]])


def test_outlines_have_the_colour_of_their_class() -> None:
    picture = np.zeros((100, 200, 3), dtype=np.uint8)
    drawn = np.asarray(draw_detections(picture, 200, BOX, np.array([1]), ("car", "bus")))
    for x, y in ((60, 70), (90, 95), (75, 70)):
        assert tuple(drawn[y, x]) == class_colour(1)
    assert not drawn[80, 75].any()
    assert not picture.any(), "the caller's picture is not drawn on"
    assert drawn[:20, :30].any(), "the legend"


def test_an_enlarged_picture_scales_the_boxes() -> None:
    picture = np.zeros((300, 600, 3), dtype=np.uint8)
    drawn = np.asarray(draw_detections(picture, 200, BOX, np.array([0]), ("car",)))
    assert tuple(drawn[210, 180]) == class_colour(0)


def test_nothing_found_is_the_picture_itself() -> None:
    picture = np.full((50, 60, 3), 7, dtype=np.uint8)
    drawn = draw_detections(picture, 60, np.zeros((0, 4)), np.zeros(0, dtype=np.int64), ("car",))
    assert (np.asarray(drawn) == 7).all()


def test_colours_of_eighty_classes_differ() -> None:
    assert len({class_colour(label) for label in range(80)}) == 80
