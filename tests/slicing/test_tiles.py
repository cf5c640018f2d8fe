"""Layouts of tiles: they cover the frame, share what they must, and lead back to the image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.errors import InputError
from vgtok.slicing.tiles import lay_out, resized


@given(st.integers(1, 900), st.integers(1, 900), st.integers(32, 400), st.integers(0, 16))
def test_tiles_of_one_size_cover_every_pixel_and_overlap(height: int, width: int, tile: int, overlap: int) -> None:
    layout = lay_out((height, width), tile, overlap)
    covered = np.zeros((height, width), dtype=int)
    for x0, y0, x1, y1 in layout.boxes.tolist():
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        covered[y0:y1, x0:x1] += 1
    assert covered.min() >= 1
    sizes = layout.boxes[:, 2:] - layout.boxes[:, :2]
    assert (sizes == sizes[0]).all()
    assert sizes.max() <= tile
    x0, x1 = layout.boxes[: layout.columns, 0], layout.boxes[: layout.columns, 2]
    assert (x1[:-1] - x0[1:] >= overlap).all()
    assert layout.rows * layout.columns == len(layout)


@pytest.mark.parametrize("size", [(765, 1360), (1080, 1920), (540, 960), (1050, 1400)])
def test_frames_of_1376_px_have_four_by_three_tiles(size: tuple[int, int]) -> None:
    layout = lay_out(size, 384, 32, 1376)
    assert (layout.columns, layout.rows) == (4, 3)
    assert max(layout.width, layout.height) == 1376
    assert lay_out(size[::-1], 384, 32, 1376).rows == 4


def test_the_far_corner_comes_back_exactly() -> None:
    layout = lay_out((765, 1360), 384, 32, 1376)
    np.testing.assert_array_equal(layout.source_boxes[-1, 2:], (1360, 765))


def test_a_tile_is_cut_where_the_layout_says() -> None:
    frame = np.arange(64 * 96 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 96, 3)
    layout = lay_out((64, 96), 64, 16)
    x0, y0, x1, y1 = layout.boxes[1].tolist()
    np.testing.assert_array_equal(layout.cut(frame, 1), frame[y0:y1, x0:x1])
    assert resized(frame, None) is frame
    assert resized(frame, 48).shape == (32, 48, 3)


@pytest.mark.parametrize(
    ("arguments", "named"), [((16, 0), "tile"), ((64, -1), "overlap"), ((64, 40), "overlap"), ((64.5, 0), "tile")]
)
def test_impossible_tiles_are_refused(arguments: tuple[int, int], named: str) -> None:
    with pytest.raises(InputError, match=named):
        lay_out((100, 100), *arguments)
