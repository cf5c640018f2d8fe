"""Guides: what each says of a tile, and the order they make."""

import numpy as np
import pytest

from tests.slicing.scenes import frame_with
from vgtok.errors import InputError
from vgtok.slicing.guides import pixel_values, score_values, tile_order
from vgtok.slicing.tiles import lay_out


def test_pixels_say_where_small_things_are() -> None:
    layout = lay_out((600, 800), 200, 0)
    frame = frame_with([(x, y, 8) for x in range(420, 580, 20) for y in range(220, 380, 20)])
    values = pixel_values(frame, layout)
    assert int(values.argmax()) == layout.columns + 2
    assert tile_order({"pixels": values}, "pixels")[0] == layout.columns + 2


def test_scores_count_objects_of_the_coarse_pass_in_their_tile_small_ones_more() -> None:
    layout = lay_out((600, 800), 200, 0)
    boxes = np.array([(10, 10, 30, 30), (210, 10, 214, 14), (420, 10, 580, 170), (610, 10, 620, 20)], dtype=float)
    values = score_values(boxes, np.array([0.5, 0.8, 0.9, 0.004]), layout, 0.5)
    # Sides of 10, 2 (which counts as 4) and 80 px in the coarse pass; the fourth is too weak.
    np.testing.assert_allclose(values, [0.05, 0.2, 0.9 / 80, *[0] * 9])


def test_both_is_the_order_of_the_pixels_where_the_coarse_pass_saw_nothing() -> None:
    pixels = np.array([3.0, 9, 1, 9])
    assert tile_order({"pixels": pixels, "scores": np.zeros(4)}, "both").tolist() == [1, 3, 0, 2]
    assert tile_order({"pixels": pixels, "scores": np.zeros(4)}, "scores").tolist() == [1, 3, 0, 2]
    assert tile_order({"pixels": pixels, "scores": np.array([9.0, 0, 0, 1])}, "both").tolist() == [0, 3, 1, 2]


def test_unknown_guides_are_refused() -> None:
    with pytest.raises(InputError, match="pixels, scores, both"):
        tile_order({"pixels": np.zeros(1)}, "random")  # type: ignore[arg-type]
