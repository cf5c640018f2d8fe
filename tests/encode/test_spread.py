"""Cells told apart inside a coarse token, against a loop over tokens and cells."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.config import configuration
from vgtok.encode.encoder import Encoder
from vgtok.encode.loading import load_weights
from vgtok.encode.packing import Crop
from vgtok.encode.spread import SpreadStage
from vgtok.tokenize.tokens import Tokens


def pair(**changes: object) -> tuple[Encoder, Encoder]:
    """The same encoder with and without a spread."""
    spread = small_encoder("vit-tiny", spread=8, **changes)
    plain = small_encoder("vit-tiny", **changes)
    plain.load_state_dict({name: t for name, t in spread.state_dict().items() if not name.startswith("spread.")})
    return spread, plain


def by_hand(encoder: Encoder, grid: Tensor, tokens: Tokens) -> Tensor:
    """Add what each token tells its cells to a (D, rows, columns) map where they are alike."""
    assert encoder.spread is not None
    told = grid.clone()
    for x, y, size in zip(tokens.x // 16, tokens.y // 16, tokens.sizes // 16, strict=True):
        if size == 1:
            continue
        added = encoder.spread.stages[str(size)](grid[None, :, y, x])[0]
        for down, right in np.ndindex(size, size):
            if y + down < grid.shape[1] and x + right < grid.shape[2]:
                told[:, y + down, x + right] += added[down * size + right]
    return told


@pytest.mark.parametrize("size", [(128, 192), (150, 300), (72, 24)])
@pytest.mark.parametrize("prefix", [0, 1])
def test_every_cell_gets_its_own_vector(size: tuple[int, int], prefix: int) -> None:
    encoder, plain = pair(prefix=prefix)
    images = [frame(*size), frame(128, 128)]
    tokens = [partition(image, 0.3) for image in images]
    with torch.no_grad():
        found, alike = encoder(images, tokens), plain(images, tokens)
        for own, grid, part in zip(found.maps, alike.maps, tokens, strict=True):
            torch.testing.assert_close(own, by_hand(encoder, grid, part), atol=1e-5, rtol=1e-5)
    assert torch.equal(found.prefix, alike.prefix)


def test_a_crop_is_spread_like_its_canvas() -> None:
    encoder, _ = pair(prefix=0, window=16)
    image = frame(256, 512)
    tokens = partition(image, 0.3)
    with torch.no_grad():
        whole = encoder([image], [tokens]).maps[0]
        part = encoder([image[:, :, 256:]], [tokens.crop(256, 0, 256, 256)], crops=[Crop(256, 0, 256, 512)]).maps[0]
    torch.testing.assert_close(part, whole[:, :, 16:], atol=1e-4, rtol=1e-4)


def test_it_starts_from_the_same_vector_for_all_cells() -> None:
    stage = SpreadStage(dim=12, rank=4, span=2)
    assert torch.equal(stage(torch.randn(5, 12)), torch.zeros(5, 4, 12))


def test_weights_of_other_sources_start_without_it(deit: Path) -> None:
    encoder = Encoder(configuration("vit-tiny", spread=8))
    load_weights(encoder, deit, "timm")
    assert encoder.spread is not None
    assert not any(stage.get_parameter("expand.weight").any() for stage in encoder.spread.stages.values())
