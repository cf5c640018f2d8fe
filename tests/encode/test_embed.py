"""Embeddings: patches are slices of the image, positions read the table bicubically, the fusion starts at zero."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.attention import rotate, rotation
from vgtok.encode.coarse import resample
from vgtok.encode.config import Resampling, configuration
from vgtok.encode.embed import FusionStage, cell_patches, normalize, read_table, region_patches
from vgtok.encode.encoder import Encoder

CONFIG = configuration("vit-tiny")


def test_cells_are_slices_of_the_normalized_image_with_zeros_beyond_it() -> None:
    image = frame(40, 56)
    whole = torch.zeros(3, 48, 64)
    whole[:, :40, :56] = normalize(image, CONFIG, torch.float32)
    row, column = torch.tensor([0, 2, 2]), torch.tensor([1, 3, 0])
    patches = cell_patches(image, row, column, CONFIG, torch.float32)
    for patch, r, c in zip(patches, row, column, strict=True):
        assert torch.equal(patch, whole[:, 16 * r : 16 * r + 16, 16 * c : 16 * c + 16])


def test_region_beyond_the_grid_repeats_the_last_cells() -> None:
    image = frame(48, 48)
    cells = region_patches(image, torch.tensor([2]), torch.tensor([2]), 2, CONFIG, torch.float32)
    assert torch.equal(cells[0, 0, 0], cells[0, 1, 1])


@pytest.mark.parametrize("span", [1, 2, 4])
def test_area_resampling_averages_blocks(span: int) -> None:
    image = frame(128, 128)
    cells = region_patches(image, torch.tensor([span]), torch.tensor([0]), span, CONFIG, torch.float32)
    region = normalize(image, CONFIG, torch.float32)[:, 16 * span : 32 * span, : 16 * span]
    blocks = region.view(3, 16, span, 16, span).mean(dim=(2, 4))
    assert torch.allclose(resample(cells, "area")[0], blocks, atol=1e-5)


@pytest.mark.parametrize("resampling", ["area", "bilinear", "bicubic"])
def test_flat_regions_stay_flat(resampling: Resampling) -> None:
    cells = torch.full((2, 4, 4, 3, 16, 16), 0.7)
    assert torch.allclose(resample(cells, resampling), torch.full((2, 3, 16, 16), 0.7), atol=1e-6)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 20))
@settings(max_examples=30, deadline=None)
def test_cell_centers_equal_bicubic_resizing(rows: int, columns: int, side: int) -> None:
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


def test_inert_at_initialization_bit_for_bit() -> None:
    fused = small_encoder("eva02-tiny")
    plain = Encoder(
        configuration(
            "eva02-tiny", dim=48, heads=3, hidden=128, depth=4, table=(8, 8), window=8, global_blocks=(1, 3), fusion=()
        )
    ).eval()
    plain.load_state_dict({k: v for k, v in fused.state_dict().items() if "fusion" not in k})
    image = frame(192, 192)
    tokens = partition(image, 0.3)
    with torch.no_grad():
        assert torch.equal(fused([image], [tokens]).maps[0], plain([image], [tokens]).maps[0])


def test_gradients_reach_both_stages_and_then_what_lies_before_them() -> None:
    encoder = small_encoder("eva02-tiny")
    image = frame(192, 192)
    tokens = partition(image, 0.3)
    assert {32, 64} <= set(tokens.sizes.tolist())
    assert encoder.embedding.fusion is not None
    optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        encoder([image], [tokens]).maps[0].square().mean().backward()
        optimizer.step()
    for name, parameter in encoder.embedding.fusion.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name


def parameters(fusion: tuple[int, ...]) -> tuple[int, int]:
    """Parameters of the large encoder: its fusion, and everything else."""
    with torch.device("meta"):
        encoder = Encoder(configuration("eva02-large", fusion=fusion))
    counts = {name: parameter.numel() for name, parameter in encoder.named_parameters()}
    fused = sum(count for name, count in counts.items() if name.startswith("embedding.fusion."))
    return fused, sum(counts.values()) - fused


def test_parameters_are_the_papers() -> None:
    fused, backbone = parameters((32, 64))
    assert fused == 11_277_312
    assert round(backbone / 1e6, 2) == 304.24
    assert parameters((32,)) == (11_277_312 - 4_195_328 - 1_049_600, backbone)
    assert parameters(()) == (0, backbone)


def test_stage_is_a_strided_convolution_applied_until_one_is_left() -> None:
    stage = FusionStage(6)
    nn.init.normal_(stage.out.weight)
    base = torch.randn(2, 4, 4, 6)
    # (D, 4 D) with the four neighbors outermost, to a (D, D, 2, 2) kernel
    kernel = stage.reduce.weight.view(6, 2, 2, 6).permute(0, 3, 1, 2)
    grid = base.permute(0, 3, 1, 2)
    for _ in range(2):
        grid = functional.conv2d(grid, kernel, stage.reduce.bias, stride=2)
    assert torch.allclose(stage(base), stage.out(grid[:, :, 0, 0]), atol=1e-5)
