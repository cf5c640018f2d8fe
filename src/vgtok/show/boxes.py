"""Draw detections over an image: outlines, labels where there is room, a legend that hides no box; side by side."""

import colorsys
import zlib
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from vgtok.errors import InputError
from vgtok.names import COCO, VISDRONE

Color = tuple[int, int, int]

TRUTH_COLOR: Color = (255, 255, 255)
"""RGB of annotated boxes, which are dashed."""

_LISTED = {name: number for number, name in enumerate(dict.fromkeys((*VISDRONE, *COCO)))}
"""Classes whose colors are chosen to differ; further ones get theirs from their name."""


def draw_detections(
    picture: Any,
    source_width: int,
    boxes: NDArray[np.float64],
    labels: NDArray[np.int64],
    class_names: Sequence[str],
    *,
    scores: NDArray[np.floating[Any]] | None = None,
    tracks: NDArray[np.int64] | None = None,
    truth: NDArray[np.float64] | None = None,
) -> Image.Image:
    """Draw (K, 4) x0 y0 x1 y1 boxes of an image `source_width` px wide on a picture of it, which may be larger.

    With `scores` (K,) or the identities `tracks` (K,), 0 for none, boxes are labeled where the label hides no other
    box, best scores first. `truth` (M, 4) are annotated boxes, drawn dashed in white. The legend is left out if it
    would hide a box wherever it stood.
    """
    canvas = np.array(picture, dtype=np.uint8)
    scale = canvas.shape[1] / source_width
    thickness = max(1, round(max(canvas.shape[:2]) / 1000))
    names = [class_names[label] for label in labels.tolist()]
    corners = np.rint(boxes * scale).astype(int)
    expected = np.rint((np.zeros((0, 4)) if truth is None else truth) * scale).astype(int)
    for box in expected.tolist():
        _dashed(canvas, box, thickness)
    for (x0, y0, x1, y1), name in zip(corners.tolist(), names, strict=True):
        cv2.rectangle(canvas, (x0, y0), (x1, y1), class_color(name), thickness)
    counts = {class_names[label]: int((labels == label).sum()) for label in np.unique(labels).tolist()}
    entries = [(class_color(name), f"{name}  {count}") for name, count in counts.items()]
    if len(expected):
        entries.append((TRUTH_COLOR, f"annotated  {len(expected)}"))
    drawn = Image.fromarray(canvas)
    taken = _covered(np.concatenate([corners, expected]), thickness, canvas.shape[:2])
    if entries:
        _legend(drawn, entries, taken)
    if scores is not None or tracks is not None:
        order = range(len(names)) if scores is None else np.argsort(-scores, kind="stable").tolist()
        for place in order:
            score = None if scores is None else float(scores[place])
            track = None if tracks is None else int(tracks[place])
            texts = _label_texts(names[place], score, track)
            _label(drawn, corners[place].tolist(), texts, class_color(names[place]), taken)
    return drawn


def class_color(name: str) -> Color:
    """Return the RGB color of a class, the same in every model: hues a golden angle apart, eight strong, eight pale."""
    plain = name.lower()
    number = _LISTED.get(plain)
    if number is None:
        number = len(_LISTED) + zlib.crc32(plain.encode()) % 4096
    saturation = 0.85 if number // 8 % 2 == 0 else 0.4
    red, green, blue = colorsys.hsv_to_rgb((0.13 + number * 0.381966) % 1.0, saturation, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def side_by_side(pictures: Sequence[Image.Image], captions: Sequence[str]) -> Image.Image:
    """Return pictures of one size beside each other, each under its caption."""
    if not pictures or len(pictures) != len(captions):
        raise InputError(f"side_by_side: {len(pictures)} pictures and {len(captions)} captions; give one caption each")
    width, height = pictures[0].size
    if any(picture.size != (width, height) for picture in pictures):
        raise InputError("side_by_side: the pictures differ in size; draw them over the same image")
    font = _fitting_font(captions, width - 8, max(11, round(max(width, height) / 60)))
    bar, gap = round(1.6 * font.size), max(2, round(width / 200))
    sheet = Image.new("RGB", (len(pictures) * (width + gap) - gap, height + bar), "black")
    for number, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left = number * (width + gap)
        sheet.paste(picture, (left, bar))
        # On its own, so that a caption too long for a small picture is cut off.
        head = Image.new("RGB", (width, bar), "black")
        ImageDraw.Draw(head).text((4, bar / 2), caption, fill="white", font=font, anchor="lm")
        sheet.paste(head, (left, 0))
    return sheet


def _fitting_font(texts: Sequence[str], width: int, size: int) -> Any:
    """Return the default font at the largest size, up to `size`, at which every text is at most `width` px wide."""
    font = ImageFont.load_default(size=size)
    longest = max(font.getlength(text) for text in texts)
    return font if longest <= width else ImageFont.load_default(size=max(6, int(size * width / longest)))


def _dashed(canvas: NDArray[np.uint8], box: list[int], thickness: int) -> None:
    x0, y0, x1, y1 = box
    dash = max(3, 4 * thickness)
    for x in range(x0, x1 + 1, 2 * dash):
        for y in (y0, y1):
            cv2.line(canvas, (x, y), (min(x + dash, x1), y), TRUTH_COLOR, thickness)
    for y in range(y0, y1 + 1, 2 * dash):
        for x in (x0, x1):
            cv2.line(canvas, (x, y), (x, min(y + dash, y1)), TRUTH_COLOR, thickness)


def _covered(boxes: NDArray[np.int64], thickness: int, shape: Sequence[int]) -> NDArray[np.bool_]:
    """Return which pixels of a picture the (N, 4) boxes and their outlines cover, (H, W)."""
    taken = np.zeros(shape, dtype=np.bool_)
    for x0, y0, x1, y1 in boxes.tolist():
        taken[
            max(y0 - thickness, 0) : max(y1 + thickness + 1, 0), max(x0 - thickness, 0) : max(x1 + thickness + 1, 0)
        ] = True
    return taken


def _legend(picture: Image.Image, entries: Sequence[tuple[Color, str]], taken: NDArray[np.bool_]) -> None:
    """Draw the legend where nothing is taken, as near to a corner as possible, smaller if need be; marks its place."""
    largest = max(11, round(max(picture.size) / 90))
    for size in dict.fromkeys((largest, max(9, round(largest * 0.7)))):
        font = ImageFont.load_default(size=size)
        line = round(size * 1.35)
        width = int(max(font.getlength(text) for _, text in entries) + 2.2 * size)
        height = line * len(entries) + size // 2
        place = _free_place(taken, height, width)
        if place is None:
            continue
        left, top = place
        taken[top : top + height, left : left + width] = True
        draw = ImageDraw.Draw(picture, "RGBA")
        draw.rectangle((left, top, left + width - 1, top + height - 1), fill=(0, 0, 0, 150))
        for number, (color, text) in enumerate(entries):
            y = top + size // 4 + number * line
            x = left + size // 2
            draw.rectangle((x, y + size // 4, x + size * 0.8, y + size), fill=color)
            draw.text((left + 1.7 * size, y), text, fill="white", font=font)
        return


def _free_place(taken: NDArray[np.bool_], height: int, width: int) -> tuple[int, int] | None:
    """Return left and top of the window of `taken` (H, W) that is wholly free and nearest to a corner; None if none."""
    rows, columns = taken.shape[0] - height + 1, taken.shape[1] - width + 1
    if rows < 1 or columns < 1:
        return None
    # (H + 1, W + 1): every window's sum is then a difference of four values.
    sums = cv2.integral(taken.astype(np.uint8), sdepth=cv2.CV_32S)
    inside = sums[height:, width:] - sums[:rows, width:] - sums[height:, :columns] + sums[:rows, :columns]
    down, across = np.arange(rows), np.arange(columns)
    distance = np.minimum(down, down[::-1])[:, None] + np.minimum(across, across[::-1])[None]
    distance = np.where(inside == 0, distance, taken.size)
    best = int(distance.argmin())
    top, left = divmod(best, columns)
    return (left, top) if inside[top, left] == 0 else None


def _label_texts(name: str, score: float | None, track: int | None) -> tuple[str, ...]:
    """Return what a label may say, the most telling first."""
    identity = f"#{track}" if track else ""
    number = "" if score is None else f"{score:.2f}"
    whole = " ".join(part for part in (name, identity, number) if part)
    return tuple(dict.fromkeys((whole, identity or number or name)))


def _label(
    picture: Image.Image, box: Sequence[int], texts: Sequence[str], color: Color, taken: NDArray[np.bool_]
) -> None:
    """Write the longest text that fits above, below or beside a box where nothing is taken; marks its place."""
    size = max(9, round(max(picture.size) / 130))
    font = ImageFont.load_default(size=size)
    x0, y0, x1, y1 = box
    # The outline is drawn up to this far outside the box.
    line = max(1, round(max(picture.size) / 1000)) + 1
    height = round(1.25 * size)
    for text in texts:
        width = int(font.getlength(text)) + 4
        for left, top in (
            (x0, y0 - line - height),
            (x0, y1 + line),
            (x1 - width, y0 - line - height),
            (x1 + line, y0),
            (x0 - line - width, y0),
        ):
            outside = left < 0 or top < 0 or left + width > taken.shape[1] or top + height > taken.shape[0]
            if outside or taken[top : top + height, left : left + width].any():
                continue
            taken[top : top + height, left : left + width] = True
            draw = ImageDraw.Draw(picture, "RGBA")
            draw.rectangle((left, top, left + width - 1, top + height - 1), fill=(0, 0, 0, 140))
            pale = tuple((2 * value + 255) // 3 for value in color)
            draw.text((left + 2, top + height / 2), text, fill=pale, font=font, anchor="lm")
            return
