"""Tokenize by a score of your own: how red a cell is. Compare with the default score.

python examples/own_scorer.py
"""

import numpy as np

from vgtok import Tokenizer
from vgtok.data import render_scene
from vgtok.tokenize import CanvasPixels, Pyramid, nest, pool_bands


def redness(pixels: CanvasPixels) -> Pyramid:
    """Score each cell by its reddest pixel, and each node by its reddest cell."""
    red = pixels.rgb[..., 0].astype(np.int16) - pixels.rgb[..., 1]
    return nest(pool_bands(pixels.extent, 0, lambda rows: np.maximum(red[rows], 0)))


image = render_scene(seed=3, width=640, height=384).pixels
# rank=0 turns the gate off, so that only the score decides.
default, own = (Tokenizer(budget=0.25, scorer=scorer, rank=0.0)(image) for scorer in ("tophat", redness))
own.overlay(image).save("example-redness.png")
same = (default.cell_sizes() == own.cell_sizes()).mean()
print(f"{len(own)} tokens each; {same:.0%} of the cells are read at the same size")
