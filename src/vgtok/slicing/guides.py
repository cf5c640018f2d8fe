"""Guides: what a fine look at each tile promises, from the pixels alone or from a coarse pass over the whole frame.

A layout of tiles enters with the pixels or with the boxes of the coarse pass; one value per tile leaves, and the order
in which tiles are worth reading.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.slicing.tiles import Layout
from vgtok.tokenize.geometry import CELL, CanvasPixels
from vgtok.tokenize.tokenizer import Tokenizer, preset
from vgtok.tokenize.tokens import tokens_from_splits

Guide = Literal["pixels", "scores", "both"]

GUIDES: tuple[Guide, ...] = ("pixels", "scores", "both")

PIXEL_READER = Tokenizer(budget=0.3, **preset("compact"))
"""The tokenizer whose 16-px tokens are counted."""

SMALLEST_SIDE = 4.0
"""Side in pixels of the coarse pass below which objects count alike."""

LOWEST_SCORE = 0.005
"""Score below which a box of the coarse pass says nothing."""


_WEIGHTS = {"scores": 0.8, "pixels": 0.2}
"""Weights of the guides in 'both'. A detector that sees anything coarsely knows best where to look again."""


def pixel_values(image: NDArray[np.uint8], layout: Layout, reader: Tokenizer = PIXEL_READER) -> NDArray[np.float64]:
    """Return the number of 16-px tokens in each tile of an (H, W, 3) image, (T,).

    Tokens over cells without any contrast do not count: in a flat image the budget has to go somewhere.
    """
    canvas = reader.to_canvas(image)
    pixels = CanvasPixels(canvas.image)
    scores = reader.score(pixels)
    splits = reader.split(scores, reader.structure(pixels), pixels.extent)
    tokens = tokens_from_splits(splits, pixels.extent, canvas.source_size)
    counted = (tokens.sizes == CELL) & (scores.fine[tokens.y // CELL, tokens.x // CELL] > 0)
    return _inside(tokens.source_boxes[counted], None, layout)


def score_values(
    boxes: NDArray[np.floating[Any]], scores: NDArray[np.floating[Any]], layout: Layout, coarse_scale: float
) -> NDArray[np.float64]:
    """Return the sum over the objects that a coarse pass found in each tile of score by side, (T,).

    The smaller an object looked, the more a closer look can gain. `boxes` (N, 4) are in pixels of the image; times
    `coarse_scale` they are in pixels of the coarse pass. The side is the square root of the area.
    """
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    values = np.asarray(scores, dtype=np.float64).reshape(-1)
    side = coarse_scale * np.sqrt(np.maximum(corners[:, 2:] - corners[:, :2], 0).prod(axis=1))
    counted = values > LOWEST_SCORE
    return _inside(corners[counted], values[counted] / np.maximum(side[counted], SMALLEST_SIDE), layout)


def tile_order(values: Mapping[str, NDArray[np.float64]], guide: Guide) -> NDArray[np.int64]:
    """Return the (T,) tiles, the one most worth reading first; of equal tiles the one of more fine tokens.

    `values` holds what each guide gave, by its name. 'both' orders by a mean of each tile's shares of the totals, so
    that where a coarse pass found nothing the pixels decide.
    """
    if guide not in GUIDES:
        raise InputError(f"guide: '{guide}' is not one of {', '.join(GUIDES)}")
    weights = _WEIGHTS if guide == "both" else {guide: 1.0}
    shares = [weight * values[name] / max(float(values[name].sum()), 1e-12) for name, weight in weights.items()]
    worth = np.sum(shares, axis=0)
    return np.asarray(np.lexsort((-values.get("pixels", worth), -worth)), dtype=np.int64)


def _inside(boxes: NDArray[np.float64], weights: NDArray[np.float64] | None, layout: Layout) -> NDArray[np.float64]:
    """Return how many (N, 4) boxes, or what weight of them, have their center in each tile, (T,)."""
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    weights = np.ones(len(boxes)) if weights is None else weights
    return np.array(
        [weights[(x >= x0) & (x < x1) & (y >= y0) & (y < y1)].sum() for x0, y0, x1, y1 in layout.source_boxes.tolist()]
    )
