"""Draw tokens and detections over an image."""

import colorsys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

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
    """Draw (N,) tokens over the image they came from; small images are enlarged so that outlines are visible."""
    pixels = read_image(image)
    if pixels.shape[:2] != (tokens.source_height, tokens.source_width):
        raise InputError(
            f"image: {pixels.shape[1]} x {pixels.shape[0]} px, but these tokens belong to an image of "
            f"{tokens.source_width} x {tokens.source_height}"
        )
    cell = CELL * min(tokens.source_width / tokens.width, tokens.source_height / tokens.height)
    enlarge = max(1, round(_MIN_CELL / cell)) if max(pixels.shape) < 4096 else 1
    if enlarge > 1:
        size = (pixels.shape[1] * enlarge, pixels.shape[0] * enlarge)
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)
    return Image.fromarray(_drawn(pixels, tokens, enlarge))


def _drawn(pixels: NDArray[np.uint8], tokens: "Tokens", enlarge: int) -> NDArray[np.uint8]:
    corners = np.rint(tokens.source_boxes * enlarge).astype(np.int64)
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


def draw_detections(
    picture: Any,
    source_width: int,
    boxes: NDArray[np.float64],
    labels: NDArray[np.int64],
    class_names: Sequence[str],
) -> Image.Image:
    """Draw (K, 4) x0 y0 x1 y1 boxes of an image `source_width` px wide on a picture of it, which may be larger."""
    canvas = np.array(picture, dtype=np.uint8)
    scale = canvas.shape[1] / source_width
    thickness = max(1, round(max(canvas.shape[:2]) / 1000))
    for (x0, y0, x1, y1), label in zip(np.rint(boxes * scale).astype(int).tolist(), labels.tolist(), strict=True):
        cv2.rectangle(canvas, (x0, y0), (x1, y1), class_color(label), thickness)
    drawn = Image.fromarray(canvas)
    counts = {label: int((labels == label).sum()) for label in np.unique(labels).tolist()}
    if counts:
        _legend(drawn, [(class_color(label), f"{class_names[label]}  {counts[label]}") for label in counts])
    return drawn


def class_color(label: int) -> tuple[int, int, int]:
    """Return the RGB color of a class: hues a golden angle apart, alternately strong and pale in groups of eight."""
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
    for number, (color, text) in enumerate(entries):
        top = size // 4 + number * line
        draw.rectangle((size // 2, top + size // 4, size // 2 + size * 0.8, top + size), fill=color)
        draw.text((1.7 * size, top), text, fill="white", font=font)
