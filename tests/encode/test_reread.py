"""Cells under coarse tokens read once more, against a loop over cells."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.config import configuration
from vgtok.encode.embed import normalize
from vgtok.encode.encoder import Encoder
from vgtok.encode.loading import load_weights
from vgtok.encode.modes import encoder_flops
from vgtok.encode.packing import Crop
from vgtok.tokenize.tokens import Tokens


def pair(**changes: object) -> tuple[Encoder, Encoder]:
    """The same encoder with and without a second reading."""
    reread = small_encoder("vit-tiny", spread=8, reread=24, **changes)
    plain = small_encoder("vit-tiny", spread=8, **changes)
    plain.load_state_dict({name: t for name, t in reread.state_dict().items() if not name.startswith("reread.")})
    return reread, plain


def by_hand(encoder: Encoder, image: Tensor, grid: Tensor, tokens: Tokens) -> Tensor:
    """Add what the pixels of each coarse cell say to a (D, rows, columns) map without them."""
    assert encoder.reread is not None
    read, told = encoder.reread, grid.clone()
    whole = functional.pad(
        normalize(image, encoder.config, torch.float32), (0, -image.shape[2] % 16, 0, -image.shape[1] % 16)
    )
    for row, column in np.argwhere(tokens.cell_sizes() > 16):
        patch = whole[:, row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
        hidden = functional.gelu(read.read.weight @ patch.flatten() + read.read.bias)
        told[:, row, column] += read.out.weight @ hidden + read.out.bias
    return told


@pytest.mark.parametrize("size", [(128, 192), (150, 300), (72, 24), (1024, 1024)])
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("gradient", [False, True])
def test_pixels_reach_every_coarse_cell(size: tuple[int, int], prefix: int, gradient: bool) -> None:
    encoder, plain = pair(prefix=prefix)
    images = [frame(*size), frame(128, 128)]
    tokens = [partition(image, 0.3) for image in images]
    with torch.set_grad_enabled(gradient):
        found, without = encoder(images, tokens), plain(images, tokens)
    for image, own, grid, part in zip(images, found.maps, without.maps, tokens, strict=True):
        torch.testing.assert_close(own, by_hand(encoder, image, grid, part), atol=1e-4, rtol=1e-4)
    assert torch.equal(found.prefix, without.prefix)


def test_a_crop_is_read_like_its_canvas() -> None:
    encoder, _ = pair(prefix=0, window=16)
    image = frame(256, 512)
    tokens = partition(image, 0.3)
    with torch.no_grad():
        whole = encoder([image], [tokens]).maps[0]
        part = encoder([image[:, :, 256:]], [tokens.crop(256, 0, 256, 256)], crops=[Crop(256, 0, 256, 512)]).maps[0]
    torch.testing.assert_close(part, whole[:, :, 16:], atol=1e-4, rtol=1e-4)


def test_every_parameter_learns() -> None:
    encoder, _ = pair()
    image = frame(128, 192)
    encoder([image], [partition(image, 0.3)]).maps[0].square().mean().backward()
    assert encoder.reread is not None
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.reread.parameters())


def test_its_cost_is_that_of_its_cells() -> None:
    encoder, plain = pair()
    tokens = partition(frame(128, 192), 0.3)
    costs = [encoder_flops("packed", one.config, tokens) for one in (encoder, plain)]
    cells = int((tokens.cell_sizes() > 16).sum())
    assert costs[0].linear - costs[1].linear == cells * 2 * 24 * (768 + 48)
    assert costs[0]._replace(linear=0) == costs[1]._replace(linear=0)
    assert encoder_flops("dense", encoder.config, tokens) == encoder_flops("dense", plain.config, tokens)


def test_weights_of_other_sources_start_without_it(deit: Path) -> None:
    encoder = Encoder(configuration("vit-tiny", reread=8))
    load_weights(encoder, deit, "timm")
    assert encoder.reread is not None
    assert not any(parameter.any() for parameter in encoder.reread.out.parameters())
