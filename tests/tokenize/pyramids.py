"""Random nested pyramids the tokenizer tests share; few distinct values make ties common."""

import numpy as np

from vgtok.tokenize.geometry import CELL, Extent, Pyramid, nest
from vgtok.tokenize.split import Structure


def random_pyramid(extent: Extent, seed: int, distinct: int = 6) -> Pyramid:
    fine = np.random.default_rng(seed).integers(0, distinct, extent.grid_shape(CELL)).astype(np.float32)
    fine[~extent.valid(CELL)] = 0
    return nest(fine)


def structure_of(pyramid: Pyramid) -> Structure:
    return Structure(pyramid.middle, pyramid.coarse)
