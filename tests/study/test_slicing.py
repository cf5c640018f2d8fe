"""Tiles, seams and duplicates by hand, and on a small detector."""

from typing import Any

import numpy as np
import pytest

from tests.detect.small_models import small_detector
from vgtok.evaluate.detections import Detections
from vgtok.study.slicing import Slices, duplicated, touching


def found(boxes: list[tuple[float, ...]], scores: list[float], labels: list[int]) -> Detections:
    return Detections(
        np.array(boxes, dtype=np.float64), np.array(scores), np.array(labels), np.zeros(len(scores), dtype=np.int64)
    )


def test_duplicates_and_seams_by_hand() -> None:
    detections = found(
        [(0, 0, 10, 10), (2, 2, 4, 4), (2, 2, 4, 4), (8, 8, 10, 10), (50, 0, 10, 10)],
        [0.5, 0.9, 0.4, 0.3, 0.2],
        [0, 0, 1, 0, 0],
    )
    # The whole box scores less than the fragment inside it, so it is the one that comes again.
    assert duplicated(detections).tolist() == [True, False, False, False, False]
    across, down = np.array([[45.0, 51.0]]), np.array([[100.0, 110.0]])
    assert touching(detections, across, down).tolist() == [False] * 4 + [True]
    assert touching(detections, np.zeros((0, 2)), np.zeros((0, 2))).tolist() == [False] * 5
    assert not duplicated(detections.take(np.zeros(5, dtype=np.bool_))).size


def test_seams_lie_where_the_slicer_s_tiles_overlap() -> None:
    slices = Slices("canvas", (2048, 1152), 640, 128)
    across, down = slices.seams(1080, 1920)
    np.testing.assert_allclose(across[0] * 2048 / 1920, (512, 640))
    np.testing.assert_allclose(across[-1] * 2048 / 1920, (1408, 1664))
    np.testing.assert_allclose(down[:, 0] * 1152 / 1080, (512,))
    assert Slices("photo", (2048, 1152)).seams(600, 640)[0].shape == (0, 2)


@pytest.mark.parametrize("of", ["canvas", "photo"])
def test_tiles_find_what_the_detector_finds_in_each(of: Any) -> None:
    detector = small_detector()
    pixels = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    slices = Slices(of, (192, 128), tile=128, overlap=64)
    result = slices(detector, pixels, 500, "query")
    # Two tiles of 128 px: on the canvas each 8 x 8 cells of the frame's 12 x 8; enlarged to it, no larger.
    assert result.retained == pytest.approx(2 * 64 / 96)
    left = detector(pixels[:, :128], budget=1.0, score_threshold=0.0)
    best = left.boxes[left.scores.argmax()]
    assert np.abs(result.boxes - best).max(axis=1).min() < 1e-3 or result.scores[0] >= left.scores.max()
    assert len(result.boxes) <= 500
    assert (np.diff(result.scores) <= 0).all()
