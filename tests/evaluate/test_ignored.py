"""The union of regions as exact areas, against painted pixels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vgtok.evaluate.ignored import covered, disjoint

corners = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 12), st.integers(1, 12)).map(
    lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])
)


def painted(boxes: list[tuple[int, ...]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    canvas = np.zeros((40, 40), dtype=np.int64)
    for x0, y0, x1, y1 in boxes:
        canvas[y0:y1, x0:x1] += 1
    return canvas


@given(regions=st.lists(corners, max_size=8))
def test_disjoint_rectangles_cover_the_union_once(regions: list[tuple[int, ...]]) -> None:
    parts = [tuple(map(int, part)) for part in disjoint(np.array(regions, dtype=np.float64).reshape(-1, 4))]
    assert np.array_equal(painted(parts), painted(regions) > 0)


@given(regions=st.lists(corners, max_size=6), boxes=st.lists(corners, min_size=1, max_size=5))
def test_covered_is_the_share_of_painted_pixels(regions: list[tuple[int, ...]], boxes: list[tuple[int, ...]]) -> None:
    union = painted(regions) > 0
    expected = [union[y0:y1, x0:x1].mean() for x0, y0, x1, y1 in boxes]
    sizes = np.array([(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes], dtype=np.float64)
    shares = covered(sizes, np.array(regions, dtype=np.float64).reshape(-1, 4))
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_a_box_without_area_lies_nowhere() -> None:
    assert covered(np.array([[1.0, 1, 0, 5]]), np.array([[0.0, 0, 9, 9]])).tolist() == [0.0]
