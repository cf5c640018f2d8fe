"""Pictures side by side with captions: what the picture studies are made of."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

_GAP, _CAPTION = 12, 30

Panel = tuple[str, NDArray[np.uint8]]
"""A caption and an (H, W, 3) RGB picture."""


def panel_rows(rows: Sequence[Sequence[Panel]], width: int) -> Image.Image:
    """Rows of panels, each row scaled to fill `width` px, captions above."""
    strips = [_row(panels, width) for panels in rows]
    height = sum(strip.height for strip in strips) + _GAP * (len(strips) + 1)
    sheet = Image.new("RGB", (width + 2 * _GAP, height), "white")
    top = _GAP
    for strip in strips:
        sheet.paste(strip, (_GAP, top))
        top += strip.height + _GAP
    return sheet


def _row(panels: Sequence[Panel], width: int) -> Image.Image:
    ratios = [picture.shape[1] / picture.shape[0] for _, picture in panels]
    height = round((width - _GAP * (len(panels) - 1)) / sum(ratios))
    strip = Image.new("RGB", (width, height + _CAPTION), "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=18)
    left = 0.0
    for (caption, picture), ratio in zip(panels, ratios, strict=True):
        size = (round(height * ratio), height)
        method = cv2.INTER_AREA if size[0] < picture.shape[1] else cv2.INTER_CUBIC
        strip.paste(Image.fromarray(cv2.resize(picture, size, interpolation=method)), (round(left), _CAPTION))
        draw.text((round(left), 4), caption, fill="black", font=font)
        left += size[0] + _GAP
    return strip


def heat_map(values: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """A (rows, columns) grid as colours over `shape` (height, width) px, its 99th percentile at full scale."""
    top = max(float(np.percentile(values, 99)), 1e-12)
    levels = np.clip(values / top * 255, 0, 255).astype(np.uint8)
    enlarged = cv2.resize(levels, shape[::-1], interpolation=cv2.INTER_NEAREST)
    return np.asarray(
        cv2.cvtColor(cv2.applyColorMap(enlarged, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB), dtype=np.uint8
    )


def boxed(picture: NDArray[np.uint8], boxes: NDArray[np.float64], colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A copy of the picture with (N, 4) boxes drawn on it."""
    drawn = picture.copy()
    thickness = max(1, picture.shape[1] // 900)
    for x0, y0, x1, y1 in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(drawn, (x0, y0), (x1, y1), colour, thickness)
    return drawn
