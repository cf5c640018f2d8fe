"""Cells gathered and regions resampled, against plain slicing."""

import pytest
import torch

from tests.encode.small import frame
from vgtok.encode.config import Resampling, configuration
from vgtok.encode.embed import cell_patches, normalise, region_patches, resample

CONFIG = configuration("vit-tiny")


def test_cells_are_slices_of_the_normalised_image_with_zeros_beyond_it() -> None:
    image = frame(40, 56)
    whole = torch.zeros(3, 48, 64)
    whole[:, :40, :56] = normalise(image, CONFIG, torch.float32)
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
    region = normalise(image, CONFIG, torch.float32)[:, 16 * span : 32 * span, : 16 * span]
    blocks = region.view(3, 16, span, 16, span).mean(dim=(2, 4))
    assert torch.allclose(resample(cells, "area")[0], blocks, atol=1e-5)


@pytest.mark.parametrize("resampling", ["area", "bilinear", "bicubic"])
def test_flat_regions_stay_flat(resampling: Resampling) -> None:
    cells = torch.full((2, 4, 4, 3, 16, 16), 0.7)
    assert torch.allclose(resample(cells, resampling), torch.full((2, 3, 16, 16), 0.7), atol=1e-6)
