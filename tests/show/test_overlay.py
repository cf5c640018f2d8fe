"""Overlays of tokens: the size of the image, colors, the wrong image refused."""

import numpy as np
import pytest

from vgtok import InputError, Tokenizer
from vgtok.show.overlay import COLORS


def test_an_overlay_has_the_callers_size_and_outlines_every_token() -> None:
    image = np.random.default_rng(0).integers(100, 140, (600, 900, 3), dtype=np.uint8)
    image[300:, :] = 120
    tokens = Tokenizer(budget=0.5, canvas="native")(image)
    overlay = np.asarray(tokens.overlay(image)).astype(int)
    assert overlay.shape == image.shape
    assert {16, 64} <= set(tokens.sizes.tolist())
    # Away from where two sizes meet: there the finer outline is the one drawn.
    for size, top in ((16, 64), (64, 448)):
        inner = (tokens.sizes == size) & (tokens.x > 0) & (tokens.x + size < 900) & (tokens.y >= top)
        x, y = tokens.x[inner][0], tokens.y[inner][0]
        corner, inside = overlay[y, x + size // 2], overlay[y + size // 2, x + size // 2]
        towards = np.array(COLORS[size])
        assert np.abs(corner - towards).sum() < np.abs(inside - towards).sum()


def test_small_images_are_drawn_enlarged() -> None:
    image = np.zeros((45, 80, 3), dtype=np.uint8)
    tokens = Tokenizer(budget=0.5)(image)
    assert tokens.overlay(image).width > 8 * 80


def test_another_image_is_refused() -> None:
    tokens = Tokenizer(budget=0.5)(np.zeros((50, 60, 3), dtype=np.uint8))
    with pytest.raises(InputError, match="belong to an image of 60 x 50"):
        tokens.overlay(np.zeros((60, 50, 3), dtype=np.uint8))
