"""Plots as PNG, and pictures side by side: panels, heat maps, boxes."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#64b5cd")
"""Colors of all plots, in the order series are drawn."""


def render_plot(draw: "Callable[[Figure], None]") -> bytes | None:
    """Draw on a new figure and return it as PNG, or None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    draw(figure)
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


_GAP, _CAPTION = 12, 30

Panel = tuple[str, NDArray[np.uint8]]
"""A caption and an (H, W, 3) RGB picture."""


def panel_rows(rows: Sequence[Sequence[Panel]], width: int) -> Image.Image:
    """Return rows of panels as one picture, each row scaled to `width` px, captions above."""
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
    """Return a (rows, columns) grid as colors over `shape` (height, width) px; the 99th percentile is full scale."""
    top = max(float(np.percentile(values, 99)), 1e-12)
    levels = np.clip(values / top * 255, 0, 255).astype(np.uint8)
    enlarged = cv2.resize(levels, shape[::-1], interpolation=cv2.INTER_NEAREST)
    return np.asarray(
        cv2.cvtColor(cv2.applyColorMap(enlarged, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB), dtype=np.uint8
    )


def boxed(picture: NDArray[np.uint8], boxes: NDArray[np.float64], color: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return a copy of the picture with (N, 4) boxes x0 y0 x1 y1 drawn on it."""
    drawn = picture.copy()
    thickness = max(1, picture.shape[1] // 900)
    for x0, y0, x1, y1 in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(drawn, (x0, y0), (x1, y1), color, thickness)
    return drawn
