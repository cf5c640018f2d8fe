"""Boxes and ignored regions move with their pixels."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.train.samples import HorizontalFlip, Photometric, Sample


def sample(boxes: list[list[float]], ignored: list[list[float]], size: tuple[int, int] = (64, 48)) -> Sample:
    """Objects painted white, ignored regions blue, on black."""
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    for color, painted in (((0, 0, 255), ignored), ((255, 255, 255), boxes)):
        for x0, y0, x1, y1 in np.array(painted, dtype=int).reshape(-1, 4):
            image[y0:y1, x0:x1] = color
    arrays = (np.array(rows, dtype=np.float64).reshape(-1, 4) for rows in (boxes, ignored))
    first, second = arrays
    return Sample(image, first, np.arange(len(boxes)), second)


def painted(image: NDArray[np.uint8], box: NDArray[np.float64]) -> float:
    x0, y0, x1, y1 = np.rint(box).astype(int)
    return float(image[y0:y1, x0:x1].mean(axis=(0, 1))[2])


def test_boxes_stay_on_their_pixels() -> None:
    before = sample([[4, 6, 20, 22]], [[32, 8, 60, 40]])
    for seed in range(20):
        after = HorizontalFlip(1.0)(before, np.random.default_rng(seed))
        for box in (*after.boxes, *after.ignored):
            assert painted(after.image, box) > 200
        outside = after.image.copy()
        for x0, y0, x1, y1 in np.rint(np.concatenate([after.boxes, after.ignored])).astype(int):
            outside[max(0, y0 - 1) : y1 + 1, max(0, x0 - 1) : x1 + 1] = 0
        assert outside.max() < 140


def test_flipping_twice_changes_nothing() -> None:
    before = sample([[4, 6, 20, 22]], [[32, 8, 60, 40]])
    random = np.random.default_rng(0)
    after = HorizontalFlip(1.0)(HorizontalFlip(1.0)(before, random), random)
    assert np.array_equal(after.image, before.image)
    assert np.array_equal(after.boxes, before.boxes)
    assert HorizontalFlip(0.0)(before, random) is before


def test_photometric_changes_pixels_and_nothing_else() -> None:
    before = sample([[4, 6, 20, 22]], [])
    after = Photometric()(before, np.random.default_rng(3))
    assert after.boxes is before.boxes
    assert after.image.dtype == np.uint8
    assert not np.array_equal(after.image, before.image)
    same = Photometric(0.0, 0.0, 0.0)(before, np.random.default_rng(3))
    assert np.array_equal(same.image, before.image)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HorizontalFlip(1.5),
        lambda: Photometric(brightness=1.0),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
