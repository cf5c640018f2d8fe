"""Every level's shape, also over odd grids."""

import pytest
import torch

from vgtok.detect.pyramid import Pyramid, level_shapes

STRIDES = (4, 8, 16, 32, 64)


@pytest.mark.parametrize(("rows", "columns"), [(8, 12), (7, 5), (1, 1)])
def test_levels_have_the_shapes_they_say(rows: int, columns: int) -> None:
    maps = Pyramid(32, 16, STRIDES)(torch.randn(2, 32, rows, columns))
    assert [tuple(level.shape) for level in maps] == [(2, 16, *shape) for shape in level_shapes(rows, columns, STRIDES)]


def test_the_paper_frame_has_196416_positions() -> None:
    assert sum(rows * columns for rows, columns in level_shapes(72, 128, STRIDES)) == 196_416
