"""The canvas: sizes, padding, and boxes there and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.errors import InputError
from vgtok.tokenize.canvas import fit_canvas, fitted_size, reflect_padding

sides = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("source", "fitted"),
    [
        ((765, 1360), (1152, 2048)),
        ((540, 960), (1152, 2048)),
        ((1080, 1920), (1152, 2048)),
        ((1920, 1080), (2048, 1152)),
        ((800, 800), (1152, 1152)),
        ((1, 1), (1152, 1152)),
        ((20000, 20000), (1152, 1152)),
        ((1, 4096), (1, 2048)),
    ],
)
def test_default_canvas_fits_either_way_up(source: tuple[int, int], fitted: tuple[int, int]) -> None:
    assert fitted_size(*source, (2048, 1152)) == fitted


@given(sides, sides)
def test_fitted_size_stays_inside_and_touches_a_side(height: int, width: int) -> None:
    fitted = fitted_size(height, width, (2048, 1152))
    assert max(fitted) <= 2048
    assert min(fitted) <= 1152
    assert max(fitted) == 2048 or min(fitted) == 1152


@given(st.integers(1, 300), st.integers(1, 300))
def test_native_canvas_pads_right_and_bottom_with_black(height: int, width: int) -> None:
    image = np.full((height, width, 3), 200, dtype=np.uint8)
    canvas = fit_canvas(image, "native")
    assert canvas.pixels.shape[0] % 64 == 0
    assert canvas.pixels.shape[1] % 64 == 0
    assert canvas.pixels.shape[0] - height < 64
    assert (canvas.image == 200).all()
    assert canvas.pixels.sum(dtype=np.int64) == image.sum(dtype=np.int64)


@given(st.integers(1, 300), st.integers(1, 300))
def test_padding_that_counts_mirrors_the_image(height: int, width: int) -> None:
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    plain = fit_canvas(image, "native")
    canvas = reflect_padding(plain)
    assert canvas.pixels.shape == plain.pixels.shape
    assert canvas.extent.dense == canvas.pixels.shape[0] * canvas.pixels.shape[1] // 256
    np.testing.assert_array_equal(canvas.pixels[:height, :width], image)
    if height > 1 and canvas.pixels.shape[0] > height:
        np.testing.assert_array_equal(canvas.pixels[height, :width], image[height - 2])
    # Boxes are placed as without padding; what is read reaches beyond the image.
    boxes = np.array([[0.0, 0.0, width, height]])
    np.testing.assert_array_equal(canvas.to_source(boxes), plain.to_source(boxes))
    assert canvas.source_size == canvas.image.shape[:2]


@given(sides, sides, st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=5))
def test_boxes_map_to_the_canvas_and_back(height: int, width: int, shares: list[tuple[float, ...]]) -> None:
    image = np.broadcast_to(np.zeros(3, dtype=np.uint8), (height, width, 3))
    fitted = fitted_size(height, width, (512, 256))
    boxes = np.array(shares) * [width, height, width, height]
    canvas = fit_canvas(np.ascontiguousarray(image), (512, 256)) if height * width < 10**6 else None
    if canvas is not None:
        np.testing.assert_allclose(canvas.to_source(canvas.from_source(boxes)), boxes, rtol=1e-12, atol=1e-9)
        corner = canvas.to_source(np.array([[0, 0, fitted[1], fitted[0]]]))
        assert corner.tolist() == [[0, 0, width, height]]


def test_boxes_beyond_the_frame_are_clipped_to_it() -> None:
    canvas = fit_canvas(np.zeros((100, 100, 3), dtype=np.uint8), "native")
    assert canvas.to_source(np.array([[64, 64, 128, 128]])).tolist() == [[64, 64, 100, 100]]


@pytest.mark.parametrize("size", [(0, 10), (-1, 5), (2048,), "large", (10.5, 4)])
def test_impossible_canvas_is_refused(size: object) -> None:
    with pytest.raises(InputError, match="canvas"):
        fitted_size(10, 10, size)  # type: ignore[arg-type]


def test_shrinking_by_more_than_half_averages_areas() -> None:
    stripes = np.zeros((1600, 1600, 3), dtype=np.uint8)
    stripes[::2] = 200
    canvas = fit_canvas(stripes, (400, 400))
    assert np.abs(canvas.image.astype(int) - 100).max() <= 1


def test_sizes_of_numpy_integers_are_sizes() -> None:
    assert fitted_size(100, 200, (np.int64(400), np.int32(200))) == (200, 400)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"canvas: \(2048, 0\) is neither \(long side, short side\)"):
        fitted_size(100, 200, (2048, 0))
    with pytest.raises(InputError, match=r"canvas: .* is more than"):
        fitted_size(100, 200, (2**16, 2**15))
