"""The VisDrone protocol written down a second time, pixel by pixel and pair by pair, with nothing shared.

Slow and plain on purpose: areas are counted in painted pixels, matches are found by loops over lists.
"""

from typing import Any

import numpy as np

Box = tuple[int, int, int, int]


def pixels(box: Box) -> set[tuple[int, int]]:
    x, y, w, h = box
    return {(column, row) for column in range(x, x + w) for row in range(y, y + h)}


def iou(one: Box, other: Box) -> float:
    a, b = pixels(one), pixels(other)
    return len(a & b) / len(a | b)


def share_inside(box: Box, regions: list[Box]) -> float:
    inside = set().union(*(pixels(region) for region in regions)) if regions else set()
    return len(pixels(box) & inside) / len(pixels(box))


def average_precision(
    lines: dict[str, list[tuple[int, ...]]],
    results: list[dict[str, Any]],
    *,
    drops_boxes: bool,
    band: tuple[float, float],
    cap: int,
) -> float | None:
    """AP in points over classes 1 to 10 and IoU 0.5 to 0.95; None without a box in the band."""
    precisions = []
    for category in range(1, 11):
        for step in range(10):
            value = _class_precision(lines, results, category, 0.5 + 0.05 * step, drops_boxes, band, cap)
            if value is not None:
                precisions.append(value)
    return 100 * float(np.mean(precisions)) if precisions else None


def _class_precision(
    lines: dict[str, list[tuple[int, ...]]],
    results: list[dict[str, Any]],
    category: int,
    threshold: float,
    drops_boxes: bool,
    band: tuple[float, float],
    cap: int,
) -> float | None:
    verdicts: list[tuple[float, bool]] = []
    total = 0
    for stem, rows in lines.items():
        region_categories = (0,) if drops_boxes else (0, 11)
        regions = [tuple(row[:4]) for row in rows if row[5] in region_categories]
        boxes = [tuple(row[:4]) for row in rows if row[5] == category]
        if drops_boxes:
            boxes = [box for box in boxes if share_inside(box, regions) < 0.5]
        detections = []
        for result in results:
            if result["image_id"] != stem or result["category_id"] != category:
                continue
            box = tuple(result["bbox"])
            inside = share_inside(box, regions) >= 0.5
            if inside and (drops_boxes or all(iou(box, other) < 0.5 for other in boxes)):
                continue
            detections.append((result["score"], box))
        detections.sort(key=lambda pair: -pair[0])
        in_band = [band[0] <= box[2] * box[3] <= band[1] for box in boxes]
        total += sum(in_band)
        free = set(range(len(boxes)))
        for score, box in detections[:cap]:
            choice = None
            # Boxes of the band first; one outside it only where none of the band is left to take.
            for wanted in (True, False):
                overlaps = [(iou(box, boxes[i]), i) for i in sorted(free) if in_band[i] is wanted]
                good = [(overlap, i) for overlap, i in overlaps if overlap >= min(threshold, 1 - 1e-10)]
                if good:
                    choice = max(good)[1]
                    break
            if choice is not None:
                free.discard(choice)
                if in_band[choice]:
                    verdicts.append((score, True))
            elif band[0] <= box[2] * box[3] <= band[1]:
                verdicts.append((score, False))
    if not total:
        return None
    verdicts.sort(key=lambda pair: -pair[0])
    hits = 0
    curve = []
    for count, (_, correct) in enumerate(verdicts, start=1):
        hits += correct
        curve.append((hits / total, hits / count))
    steps = []
    for recall in np.linspace(0, 1, 101):
        reached = [precision for at, precision in curve if at >= recall]
        steps.append(max(reached, default=0.0))
    return float(np.mean(steps))
