"""Detections over a frame: an outline per box in the colour of its class, and a legend that counts them.

Small objects leave no room for captions, so names stand once, in the corner.
"""

import colorsys
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont


def draw_detections(
    picture: Any,
    source_width: int,
    boxes: NDArray[np.float64],
    labels: NDArray[np.int64],
    class_names: Sequence[str],
) -> Image.Image:
    """Draw (K, 4) x0 y0 x1 y1 boxes of an image `source_width` px wide on a picture of it, which may be enlarged."""
    canvas = np.array(picture, dtype=np.uint8)
    scale = canvas.shape[1] / source_width
    thickness = max(1, round(max(canvas.shape[:2]) / 1000))
    for (x0, y0, x1, y1), label in zip(np.rint(boxes * scale).astype(int).tolist(), labels.tolist(), strict=True):
        cv2.rectangle(canvas, (x0, y0), (x1, y1), class_colour(label), thickness)
    drawn = Image.fromarray(canvas)
    counts = {label: int((labels == label).sum()) for label in np.unique(labels).tolist()}
    if counts:
        _legend(drawn, [(class_colour(label), f"{class_names[label]}  {counts[label]}") for label in counts])
    return drawn


def class_colour(label: int) -> tuple[int, int, int]:
    """An RGB colour per class: hues a golden angle apart, paler after every eight, when hues come close again."""
    saturation = 0.85 if label // 8 % 2 == 0 else 0.4
    red, green, blue = colorsys.hsv_to_rgb((0.13 + label * 0.381966) % 1.0, saturation, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def _legend(picture: Image.Image, entries: list[tuple[tuple[int, int, int], str]]) -> None:
    size = max(11, round(max(picture.size) / 90))
    font = ImageFont.load_default(size=size)
    draw = ImageDraw.Draw(picture, "RGBA")
    line = round(size * 1.35)
    width = max(draw.textlength(text, font=font) for _, text in entries) + 2.2 * size
    draw.rectangle((0, 0, width, line * len(entries) + size // 2), fill=(0, 0, 0, 150))
    for number, (colour, text) in enumerate(entries):
        top = size // 4 + number * line
        draw.rectangle((size // 2, top + size // 4, size // 2 + size * 0.8, top + size), fill=colour)
        draw.text((1.7 * size, top), text, fill="white", font=font)
