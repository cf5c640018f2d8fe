"""The table read at points, and RoPE at points, against what a dense grid gets."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from vgtok.encode.attention import rotate, rotation
from vgtok.encode.embed import read_table


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 20))
@settings(max_examples=30, deadline=None)
def test_cell_centres_equal_bicubic_resizing(rows: int, columns: int, side: int) -> None:
    table = torch.randn(side, side, 5, generator=torch.Generator().manual_seed(side))
    resized = functional.interpolate(
        table.permute(2, 0, 1)[None], size=(rows, columns), mode="bicubic", align_corners=False
    )
    row, column = torch.meshgrid(
        (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij"
    )
    read = read_table(table, row.flatten(), column.flatten())
    assert (read - resized[0].flatten(1).T).abs().max() < 2e-5


def test_table_at_its_own_grid_is_itself_and_takes_gradients() -> None:
    table = torch.randn(4, 6, 3, requires_grad=True)
    row, column = torch.meshgrid((torch.arange(4) + 0.5) / 4, (torch.arange(6) + 0.5) / 6, indexing="ij")
    read = read_table(table, row.flatten(), column.flatten())
    assert torch.allclose(read, table.flatten(0, 1), atol=1e-6)
    read.sum().backward()
    assert table.grad is not None
    assert torch.allclose(table.grad, torch.ones_like(table), atol=1e-6)


def test_rotation_is_the_interleaved_formula() -> None:
    # Written out as released models have it: 16 frequencies, each twice, rows then columns.
    values = torch.randn(1, 2, 3, 64)
    row, column = torch.tensor([5 / 24]), torch.tensor([7 / 24])
    frequency = 10000.0 ** (-torch.arange(0, 32, 2) / 32)
    angle = torch.cat([(share * 16 * frequency).repeat_interleave(2) for share in (row, column)])
    swapped = torch.stack([-values[..., 1::2], values[..., 0::2]], dim=-1).flatten(-2)
    expected = values * angle.cos() + swapped * angle.sin()
    assert (rotate(values, rotation(row, column, 64)) - expected).abs().max() < 1e-6


def test_half_precision_is_turned_in_full() -> None:
    values = torch.randn(2, 2, 1, 8).bfloat16()
    turned = rotate(values, rotation(torch.tensor([0.0, 0.5]), torch.tensor([0.0, 0.25]), 8))
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned[0], values[0])
