"""Windows cover a frame, their cores part it, and boxes found in several windows are listed once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.small_models import small_detector
from vgtok.data import render_scene
from vgtok.detect import Detector
from vgtok.errors import InputError
from vgtok.slicing.frames import ArrayFrame
from vgtok.slicing.windows import WindowFound, Windows, merged_windows
from vgtok.tokenize import Tokenizer

SIDES = st.integers(4, 16).map(lambda roots: 64 * roots)


@given(st.integers(1, 5000), st.integers(1, 5000), SIDES, SIDES, st.sampled_from([64, 128]))
def test_windows_cover_and_cores_part_the_frame(height: int, width: int, across: int, down: int, overlap: int) -> None:
    windows = Windows(across, down, overlap).over(height, width)
    seen, owner, alone = (np.zeros((-(-height // 8), -(-width // 8)), dtype=np.int64) for _ in range(3))

    def area(x0: int, y0: int, x1: int, y1: int) -> tuple[slice, slice]:
        # Lines between windows lie on multiples of 8 px, but for the last, ragged window.
        return slice(-(-y0 // 8), -(-y1 // 8)), slice(-(-x0 // 8), -(-x1 // 8))

    for window in windows:
        x1, y1 = window.x + window.width, window.y + window.height
        assert 0 <= window.x < x1 <= width
        assert 0 <= window.y < y1 <= height
        assert window.x % 64 == window.y % 64 == 0
        assert window.width <= across
        assert window.height <= down
        # The part of a window on another side of it is a multiple of roots, or the edge of the frame.
        assert window.width % 64 == 0 or x1 == width
        assert window.height % 64 == 0 or y1 == height
        assert window.x <= window.core[0] <= window.core[2] <= x1
        assert window.y <= window.core[1] <= window.core[3] <= y1
        seen[window.y // 8 : -(-y1 // 8), window.x // 8 : -(-x1 // 8)] += 1
        owner[area(*window.core)] += 1
        if window.alone[0] < window.alone[2] and window.alone[1] < window.alone[3]:
            alone[area(*window.alone)] += 1
    assert (seen >= 1).all()
    assert (owner == 1).all()
    assert (seen[alone > 0] <= 2).all()
    assert (alone <= 1).all()


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_every_object_is_listed_once(seed: int) -> None:
    """Windows find the objects whose centers they show, boxes off by a pixel; merged, there is one box per object."""
    random = np.random.default_rng(seed)
    height, width = 1500, 2100
    sizes = random.uniform(6, 60, (40, 2))
    # Objects on a grid, so that none is over another.
    cells = random.permutation(20 * 14)[:40]
    corners = np.stack([cells % 20, cells // 20], axis=1) * 100.0 + random.uniform(0, 35, (40, 2))
    truth = np.concatenate([corners, corners + sizes], axis=1)
    windows = Windows(640, 512, 128).over(height, width)
    found = {}
    for number, window in enumerate(windows):
        low, high = np.array([window.x, window.y]), np.array([window.x + window.width, window.y + window.height])
        center = (truth[:, :2] + truth[:, 2:]) / 2
        shown = ((center > low) & (center < high)).all(axis=1)
        boxes = truth[shown] + random.uniform(-1, 1, (shown.sum(), 4))
        boxes = np.concatenate([np.maximum(boxes[:, :2], low), np.minimum(boxes[:, 2:], high)], axis=1)
        scores = random.uniform(0.3, 1, len(boxes)).astype(np.float32)
        found[number] = WindowFound(boxes, scores, np.zeros(len(boxes), dtype=np.int64), 0.0, 0.0)
    merged = merged_windows(windows, found, (height, width))
    assert (np.diff(merged.scores) <= 0).all()
    # A box belongs to the object its center is in.
    center = (merged.boxes[:, None, :2] + merged.boxes[:, None, 2:]) / 2
    inside = ((center > truth[:, :2]) & (center < truth[:, 2:])).all(axis=2)
    np.testing.assert_array_equal(inside.sum(axis=0), 1)
    np.testing.assert_allclose(truth[inside.argmax(axis=1)], merged.boxes, atol=1.01)


def test_nothing_found_is_an_empty_list() -> None:
    merged = merged_windows(Windows().over(3000, 3000), {}, (3000, 3000))
    assert merged.boxes.shape == (0, 4)


@pytest.mark.parametrize("sides", [(1000, 640), (0, 640), (1024, 640, 100), (256, 256, 192), (640.0, 640)])
def test_windows_that_cannot_be(sides: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="windows: "):
        Windows(*sides)


def test_windows_like_a_canvas() -> None:
    assert Windows.like((2048, 1152)) == Windows(2048, 1152)
    assert Windows.like((1000, 1000)) == Windows(960, 960)
    assert Windows.like((100, 60)) == Windows(256, 256)
    assert Windows.like("native") == Windows()


# The detector by windows.


@pytest.fixture(scope="module")
def detector() -> Detector:
    return small_detector()


@pytest.fixture(scope="module")
def scene() -> Any:
    return render_scene(seed=3, width=700, height=400).pixels


def test_one_window_over_all_gives_what_the_whole_gives(detector: Detector, scene: Any) -> None:
    whole = detector(scene, budget=0.4, canvas="native", score_threshold=0.0)
    one = detector(scene, budget=0.4, canvas=Windows(1024, 512), score_threshold=0.0)
    assert one.windows == (1, 1)
    assert whole.windows is None
    np.testing.assert_array_equal(one.tokens.boxes, whole.tokens.boxes)
    np.testing.assert_allclose(one.boxes, whole.boxes)
    np.testing.assert_array_equal(one.labels, whole.labels)
    assert "in 1 of 1 windows" in repr(one)


def test_several_windows_share_one_budget(detector: Detector, scene: Any) -> None:
    result = detector(scene, budget=0.3, canvas=Windows(320, 256, 64), score_threshold=0.0)
    assert result.windows is not None
    assert result.windows[1] == 6
    assert abs(result.tokens.retained - 0.3) < 0.005
    result.tokens.validate()
    assert (result.boxes[:, 2] > 320).any()
    assert result.boxes.min() >= 0
    assert (result.boxes.max(axis=0) <= [700, 400, 700, 400]).all()
    assert result.plot().size == (700, 400)


def test_flat_windows_are_not_read(detector: Detector) -> None:
    pixels = np.full((512, 1024, 3), 100, dtype=np.uint8)
    pixels[100:120, 600:630] = 220
    result = detector(pixels, budget=0.2, canvas=Windows(512, 512, 64), score_threshold=0.0)
    assert result.windows == (1, 3)


def test_large_images_are_read_by_windows_unless_another_canvas_is_asked_for(detector: Detector) -> None:
    pixels = np.full((70, 4097, 3), 100, dtype=np.uint8)
    small = np.full((60, 90, 3), 100, dtype=np.uint8)
    results = detector([small, pixels, small], budget=0.2)
    assert [result.windows for result in results] == [None, (0, 32), None]
    assert (results[1].tokens.height, results[1].tokens.width) == (70, 4097)
    assert detector(pixels, budget=0.2, canvas=(512, 256)).tokens.width == 512
    with pytest.raises(InputError, match="canvas: a tokenizer brings its own"):
        detector(small, tokenizer=Tokenizer(0.4), canvas="native")


def test_finished_windows_are_not_read_again(detector: Detector, scene: Any) -> None:
    class Counted(ArrayFrame):
        reads = 0

        def read(self, x: int, y: int, height: int, width: int) -> Any:
            Counted.reads += 1
            return super().read(x, y, height, width)

    windows = Windows(320, 256, 64)
    finished: dict[int, WindowFound] = {}
    first = detector.on_frame(Counted(scene), budget=0.3, canvas=windows, score_threshold=0.0, finished=finished)
    assert first.windows is not None
    assert len(finished) == first.windows[0] > 2
    del finished[max(finished)]
    Counted.reads = 0
    again = detector.on_frame(Counted(scene), budget=0.3, canvas=windows, score_threshold=0.0, finished=finished)
    # The one part of the partition, and the window that was missing.
    assert Counted.reads == 2
    np.testing.assert_array_equal(again.boxes, first.boxes)


def test_what_holds_no_data_takes_no_budget(detector: Detector, scene: Any) -> None:
    data = np.zeros(scene.shape[:2], dtype=np.bool_)
    data[:, :384] = True
    pixels = np.where(data[:, :, None], scene, 0).astype(np.uint8)
    for canvas in (Windows(320, 256, 64), "native", (350, 200)):
        result = detector.on_frame(ArrayFrame(pixels, data), budget=0.3, canvas=canvas)  # type: ignore[arg-type]
        assert abs(result.tokens.retained - 0.3) < 0.02
        assert result.tokens.source_boxes[:, 0].max() < 384
