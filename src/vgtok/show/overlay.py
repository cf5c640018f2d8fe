"""Draw tokens over an image."""

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.errors import InputError
from vgtok.tokenize.canvas import read_image
from vgtok.tokenize.geometry import CELL, NODE, ROOT

if TYPE_CHECKING:
    from vgtok.tokenize.tokens import Tokens


COLORS = {CELL: (255, 196, 0), NODE: (0, 190, 255), ROOT: (120, 90, 255)}
"""RGB outline per token size: warm for fine tokens, cool for coarse ones."""

_TINT = {CELL: 0.0, NODE: 0.14, ROOT: 0.24}
_MIN_CELL = 8.0
"""Image pixels the finest token must span for its outline to be visible; smaller images are enlarged."""


def draw_tokens(tokens: "Tokens", image: Any) -> Image.Image:
    """Draw (N,) tokens over the image they came from, or a reduced picture of it.

    Small images are enlarged so that outlines are visible.
    """
    pixels = read_image(image)
    scale = pixels.shape[1] / tokens.source_width
    # The height of a reduced picture is rounded.
    if scale > 1 or abs(pixels.shape[0] - scale * tokens.source_height) > (1 if scale < 1 else 0):
        raise InputError(
            f"image: {pixels.shape[1]} x {pixels.shape[0]} px, but these tokens belong to an image of "
            f"{tokens.source_width} x {tokens.source_height}"
        )
    cell = CELL * min(tokens.source_width / tokens.width, tokens.source_height / tokens.height)
    enlarge = max(1, round(_MIN_CELL / cell)) if max(pixels.shape) < 4096 and scale == 1 else 1
    if enlarge > 1:
        size = (pixels.shape[1] * enlarge, pixels.shape[0] * enlarge)
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)
    return Image.fromarray(_drawn(pixels, tokens, scale * enlarge))


def _drawn(pixels: NDArray[np.uint8], tokens: "Tokens", scale: float) -> NDArray[np.uint8]:
    corners = np.rint(tokens.source_boxes * scale).astype(np.int64)
    canvas = pixels.copy()
    tinted = pixels.astype(np.float32)
    for size, weight in _TINT.items():
        if weight:
            color = np.array(COLORS[size], dtype=np.float32)
            for x0, y0, x1, y1 in corners[tokens.sizes == size]:
                region = tinted[y0:y1, x0:x1]
                canvas[y0:y1, x0:x1] = region + (color - region) * weight
    # Coarse outlines first, so that the finer one is visible where two sizes meet.
    lines = canvas.copy()
    for size in (ROOT, NODE, CELL):
        for x0, y0, x1, y1 in corners[tokens.sizes == size]:
            cv2.rectangle(lines, (int(x0), int(y0)), (int(x1), int(y1)), COLORS[size], 1)
    return np.asarray(cv2.addWeighted(lines, 0.75, canvas, 0.25, 0), dtype=np.uint8)
