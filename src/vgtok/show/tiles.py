"""Draw which tiles of an image were read finely: their outlines and their places, the rest dimmed."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

OUTLINE = (255, 196, 0)
"""RGB of a tile that was read, as of the finest tokens."""

_DIM = 0.55


def draw_tiles(image: NDArray[np.uint8], boxes: NDArray[np.floating[Any]], read: NDArray[np.int64]) -> Image.Image:
    """Draw (T, 4) tiles over an (H, W, 3) image; `read` (R,) are those that were read, in their order."""
    corners = np.rint(boxes).astype(int)
    seen = np.zeros(image.shape[:2], dtype=np.bool_)
    for x0, y0, x1, y1 in corners[read].tolist():
        seen[y0:y1, x0:x1] = True
    canvas = np.where(seen[..., None], image, (image * np.float32(_DIM)).astype(np.uint8))
    thickness = max(1, round(max(image.shape[:2]) / 700))
    for x0, y0, x1, y1 in corners[read].tolist():
        # Inside the tile, so that neighbors and the border of the image hide no line.
        inset = thickness // 2 + 1
        cv2.rectangle(canvas, (x0 + inset, y0 + inset), (x1 - 1 - inset, y1 - 1 - inset), OUTLINE, thickness)
    picture = Image.fromarray(canvas)
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=max(10, round(max(image.shape[:2]) / 70)))
    for place, tile in enumerate(read.tolist(), start=1):
        x0, y0 = corners[tile, :2].tolist()
        draw.text((x0 + 3 * thickness + 2, y0 + 3 * thickness), str(place), fill=OUTLINE, font=font)
    return picture
