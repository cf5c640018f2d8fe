"""Detections over a frame: found, missed, false and ignored, each in a colour of its own."""

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.data.rows import corners
from vgtok.evaluate.mistakes import Mistakes
from vgtok.tokenize.images import read_image

FOUND, MISSED, FALSE, IGNORED = (60, 200, 90), (235, 40, 60), (255, 170, 0), (150, 150, 160)
LEGEND = {"found": FOUND, "missed": MISSED, "false": FALSE, "ignored": IGNORED}
"""RGB outline per verdict."""

_LONGEST = 1360
"""Pixels of the longer side of a picture: enough for small boxes to be seen, small enough to embed."""


def draw_mistakes(mistakes: Mistakes, index: int, image: object) -> Image.Image:
    """The image at `index` with every verdict drawn; missed boxes come last, on top."""
    pixels = read_image(image)
    scale = _LONGEST / max(pixels.shape[:2])
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    canvas = np.asarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=interpolation), dtype=np.uint8)
    canvas = _shaded(canvas, mistakes.truth.regions[index] * scale)
    shown = mistakes.shown.image == index
    missed = (mistakes.truth.image == index) & ~mistakes.found & ~mistakes.truth.crowd
    for boxes, colour in (
        (mistakes.shown.boxes[shown & mistakes.neutral], IGNORED),
        (mistakes.shown.boxes[shown & mistakes.correct], FOUND),
        (mistakes.shown.boxes[shown & ~mistakes.correct & ~mistakes.neutral], FALSE),
        (mistakes.truth.boxes[missed], MISSED),
    ):
        for x0, y0, x1, y1 in np.rint(corners([tuple(box) for box in boxes]) * scale).astype(int).tolist():
            cv2.rectangle(canvas, (x0, y0), (x1, y1), colour, 1)
    return Image.fromarray(canvas)


def _shaded(canvas: NDArray[np.uint8], regions: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Ignored regions half grey."""
    shade = canvas.copy()
    for x0, y0, x1, y1 in np.rint(regions).astype(int).tolist():
        cv2.rectangle(shade, (x0, y0), (x1, y1), IGNORED, -1)
    return np.asarray(cv2.addWeighted(shade, 0.5, canvas, 0.5, 0), dtype=np.uint8)
