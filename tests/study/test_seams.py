"""Windows over the canvas share its partition and place what they find in the image."""

import numpy as np

from tests.detect.small_models import small_detector
from vgtok.evaluate.detections import Detections, GroundTruth
from vgtok.evaluate.evaluation import Mistakes
from vgtok.slicing.windows import Windows
from vgtok.study.seams import ByWindows, on_seams, repeats
from vgtok.tokenize.tokenizer import Tokenizer


def test_one_window_over_the_canvas_finds_what_the_whole_shows() -> None:
    detector = small_detector()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    canvas = (192, 128)
    whole = detector(pixels, tokenizer=Tokenizer(budget=0.4, canvas=canvas), score_threshold=0.0, head="query")
    found = ByWindows(Windows(256, 256), canvas)(detector, pixels, 500, "query")
    assert found.retained == whole.tokens.retained
    # Float32 as stored; both are in pixels of the image, of which the canvas is twice the size.
    np.testing.assert_allclose(found.boxes, whole.boxes[:500], atol=1e-3)
    assert len(ByWindows(Windows(256, 256), canvas)(detector, pixels, 3, "query").boxes) <= 3


def test_a_double_lies_on_an_object_that_another_detection_found() -> None:
    none = np.zeros(0, dtype=np.int64)
    boxes = np.array([(0, 0, 20, 10), (40, 0, 20, 10), (80, 0, 20, 10)], dtype=np.float64)
    truth = GroundTruth(
        ("car", "van"),
        np.array([7]),
        boxes,
        np.prod(boxes[:, 2:], axis=1),
        np.array([0, 0, 1]),
        np.zeros(3, dtype=np.bool_),
        np.zeros(3, dtype=np.int64),
        (np.zeros((0, 4)),),
        0,
        (),
    )
    shown = Detections(
        np.array(
            [
                (0, 0, 20, 10),  # the first car
                (1, 0, 20, 10),  # the same again
                (0, 0, 5, 10),  # a part of it
                (12, 0, 20, 10),  # a neighbor that overlaps it
                (80, 0, 20, 10),  # a car on a van
                (42, 0, 5, 10),  # a part of a car that was not found
            ],
            dtype=np.float64,
        ),
        np.linspace(0.9, 0.4, 6),
        np.array([0] * 6),
        np.zeros(6, dtype=np.int64),
    )
    correct = np.array([True] + [False] * 5)
    found = np.array([True, False, False])
    mistakes = Mistakes(0.4, truth, shown, correct, np.zeros(6, dtype=np.bool_), found, none, none)
    assert repeats(mistakes).tolist() == [False, True, True, False, False, False]


def test_a_seam_is_the_line_between_the_cores_of_two_windows() -> None:
    # 512 x 256 px, enlarged twice: windows over 1024 x 512 px meet at x = 512 and y = 256.
    windows = Windows(640, 320, overlap=128)
    corners = {window.core[:2] for window in windows.over(512, 1024)}
    assert {x for x, _ in corners} == {0, 512}
    assert {y for _, y in corners} == {0, 256}
    boxes = np.array(
        [
            (250, 10, 10, 10),  # over the vertical line
            (10, 120, 10, 10),  # over the horizontal one
            (10, 10, 10, 10),  # on none
            (261, 10, 10, 10),  # within a few pixels of one
            (270, 10, 10, 10),  # not near enough
        ],
        dtype=np.float64,
    )
    image = np.array([1, 1, 1, 1, 1])
    shown = Detections(boxes, np.ones(5), np.zeros(5, dtype=np.int64), image)
    found = on_seams(shown, [(64, 64), (512, 256)], windows, (1024, 512))
    assert found.tolist() == [True, True, False, False, False]
