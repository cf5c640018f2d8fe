"""Boxes and ignored regions go where their pixels go."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vgtok.data.augment import (
    Augmentation,
    CropAroundObject,
    HorizontalFlip,
    MultiScaleResize,
    Photometric,
    Sample,
    Transform,
)
from vgtok.errors import InputError


def sample(boxes: list[list[float]], ignored: list[list[float]], size: tuple[int, int] = (64, 48)) -> Sample:
    """Objects painted white, ignored regions blue, on black."""
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    for colour, painted in (((0, 0, 255), ignored), ((255, 255, 255), boxes)):
        for x0, y0, x1, y1 in np.array(painted, dtype=int).reshape(-1, 4):
            image[y0:y1, x0:x1] = colour
    arrays = (np.array(rows, dtype=np.float64).reshape(-1, 4) for rows in (boxes, ignored))
    first, second = arrays
    return Sample(image, first, np.arange(len(boxes)), second)


def painted(image: NDArray[np.uint8], box: NDArray[np.float64]) -> float:
    x0, y0, x1, y1 = np.rint(box).astype(int)
    return float(image[y0:y1, x0:x1].mean(axis=(0, 1))[2])


@pytest.mark.parametrize("transform", [HorizontalFlip(1.0), MultiScaleResize(0.5, 2.0), CropAroundObject(40, 30)])
def test_boxes_stay_on_their_pixels(transform: Transform) -> None:
    before = sample([[4, 6, 20, 22]], [[32, 8, 60, 40]])
    for seed in range(20):
        after = transform(before, np.random.default_rng(seed))
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


coordinates = st.tuples(st.integers(0, 50), st.integers(0, 36), st.integers(1, 14), st.integers(1, 12)).map(
    lambda box: [box[0], box[1], box[0] + box[2], box[1] + box[3]]
)


@settings(max_examples=150, deadline=None)
@given(
    boxes=st.lists(coordinates, max_size=6),
    ignored=st.lists(coordinates, max_size=3),
    width=st.integers(1, 80),
    height=st.integers(1, 80),
    seed=st.integers(0, 99),
)
def test_a_crop_loses_no_pixel_of_an_object(
    boxes: list[list[float]], ignored: list[list[float]], width: int, height: int, seed: int
) -> None:
    before = sample(boxes, ignored)
    after = CropAroundObject(width, height)(before, np.random.default_rng(seed))
    assert after.image.shape == (min(height, 48), min(width, 64), 3)
    limits = np.array([after.image.shape[1], after.image.shape[0]] * 2)
    covered = np.zeros(after.image.shape[:2], dtype=bool)
    for part in (after.boxes, after.ignored):
        assert (part >= 0).all()
        assert (part <= limits).all()
        assert (part[:, 2:] > part[:, :2]).all()
        for x0, y0, x1, y1 in part.astype(int):
            covered[y0:y1, x0:x1] = True
    # Every painted pixel is still inside a box or an ignored region: nothing became background.
    assert np.array_equal(covered, after.image[..., 2] > 0)
    assert len(after.labels) == len(after.boxes)
    fits = [box for box in boxes if box[2] - box[0] <= width and box[3] - box[1] <= height]
    if len(fits) == len(boxes) > 0:
        assert len(after.boxes)


def test_a_box_cut_below_half_becomes_an_ignored_region() -> None:
    before = Sample(
        np.zeros((10, 40, 3), dtype=np.uint8),
        np.array([[0.0, 0, 4, 10], [6.0, 0, 16, 10]]),
        np.array([5, 6]),
        np.zeros((0, 4)),
    )
    seen = set()
    for seed in range(40):
        after = CropAroundObject(10, 10)(before, np.random.default_rng(seed))
        seen.add((tuple(after.labels.tolist()), len(after.ignored)))
    assert ((5,), 1) in seen
    assert ((6,), 0) in seen


def test_photometric_changes_pixels_and_nothing_else() -> None:
    before = sample([[4, 6, 20, 22]], [])
    after = Photometric()(before, np.random.default_rng(3))
    assert after.boxes is before.boxes
    assert after.image.dtype == np.uint8
    assert not np.array_equal(after.image, before.image)
    same = Photometric(0.0, 0.0, 0.0)(before, np.random.default_rng(3))
    assert np.array_equal(same.image, before.image)


def test_streams_repeat_and_differ_by_worker_and_epoch() -> None:
    augmentation = Augmentation((MultiScaleResize(), CropAroundObject(40, 30), HorizontalFlip(), Photometric()), seed=7)
    before = sample([[4, 6, 20, 22]], [[32, 8, 60, 40]])

    def drawn(epoch: int, worker: int) -> bytes:
        stream = augmentation.stream(epoch, worker)
        return b"".join(stream(before).image.tobytes() for _ in range(3))

    assert drawn(1, 0) == drawn(1, 0)
    assert len({drawn(epoch, worker) for epoch in range(3) for worker in range(3)}) == 9


@pytest.mark.parametrize(
    "make",
    [
        lambda: HorizontalFlip(1.5),
        lambda: MultiScaleResize(0.0, 1.0),
        lambda: MultiScaleResize(2.0, 1.0),
        lambda: CropAroundObject(0, 5),
        lambda: CropAroundObject(5, 5, visible=0.0),
        lambda: Photometric(brightness=1.0),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
