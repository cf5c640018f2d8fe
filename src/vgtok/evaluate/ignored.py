"""Ignored regions: which detections count neither way, and which boxes a protocol drops.

Areas are those of the union of the regions, exactly, with nothing drawn on a pixel grid.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vgtok.evaluate.detections import Detections, GroundTruth
from vgtok.overlap import iou_xywh

INSIDE = 0.5
"""The share of a box's area in the union of ignored regions from which it lies inside."""

_FOUND = 0.5
"""The IoU with a scored box of its class from which a detection is never ignored."""


def without_ignored(truth: GroundTruth, detections: Detections, drops_boxes: bool) -> tuple[GroundTruth, Detections]:
    """Take out what a protocol ignores: detections inside regions, and with `drops_boxes` the boxes inside too.

    Where boxes stay, so does every detection that finds one of its class.
    """
    inside = _inside(detections.boxes, detections.image, truth.regions)
    if drops_boxes:
        kept = ~_inside(truth.boxes, truth.image, truth.regions)
        return _boxes(truth, kept), detections.take(~inside)
    candidates = np.flatnonzero(inside)
    found = _finds_a_box(detections.take(candidates), truth)
    inside[candidates[found]] = False
    return truth, detections.take(~inside)


def covered(boxes: NDArray[np.float64], regions: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share (N,) of each box (N, 4: x y width height) in the union of regions (M, 4 corners)."""
    inside = np.zeros(len(boxes))
    x0, y0, width, height = boxes.T
    for left, top, right, bottom in disjoint(regions):
        across = np.minimum(x0 + width, right) - np.maximum(x0, left)
        down = np.minimum(y0 + height, bottom) - np.maximum(y0, top)
        inside += np.maximum(across, 0) * np.maximum(down, 0)
    areas = width * height
    np.divide(inside, areas, out=inside, where=areas > 0)
    return inside


def disjoint(regions: NDArray[np.float64]) -> Iterator[tuple[float, float, float, float]]:
    """Rectangles without overlap that cover exactly what (M, 4) regions cover: one band per pair of edges."""
    for top, bottom in pairwise(np.unique(regions[:, [1, 3]])):
        spans = regions[(regions[:, 1] <= top) & (regions[:, 3] >= bottom)][:, [0, 2]]
        if not len(spans):
            continue
        spans = spans[np.argsort(spans[:, 0])]
        left, right = spans[0]
        for start, end in spans[1:]:
            if start > right:
                yield float(left), float(top), float(right), float(bottom)
                left, right = start, end
            else:
                right = max(right, end)
        yield float(left), float(top), float(right), float(bottom)


def _inside(
    boxes: NDArray[np.float64], image: NDArray[np.int64], regions: tuple[NDArray[np.float64], ...]
) -> NDArray[np.bool_]:
    inside = np.zeros(len(boxes), dtype=np.bool_)
    for index, members in _by_image(image, len(regions)):
        if len(regions[index]):
            inside[members] = covered(boxes[members], regions[index]) >= INSIDE
    return inside


def _finds_a_box(detections: Detections, truth: GroundTruth) -> NDArray[np.bool_]:
    """Whether each detection overlaps a scored box of its class in its image by `_FOUND`."""
    found = np.zeros(len(detections), dtype=np.bool_)
    scored = np.flatnonzero(~truth.crowd)
    scored = scored[np.argsort(truth.image[scored], kind="stable")]
    edges = np.searchsorted(truth.image[scored], np.arange(len(truth.regions) + 1))
    for index, members in _by_image(detections.image, len(truth.regions)):
        boxes = scored[edges[index] : edges[index + 1]]
        overlap = iou_xywh(detections.boxes[members], truth.boxes[boxes])
        overlap[detections.labels[members, None] != truth.labels[None, boxes]] = 0
        found[members] = (overlap >= _FOUND).any(axis=1)
    return found


def _by_image(image: NDArray[np.int64], images: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The members of each image that has any."""
    order = np.argsort(image, kind="stable")
    edges = np.searchsorted(image[order], np.arange(images + 1))
    for index in range(images):
        if edges[index] < edges[index + 1]:
            yield index, order[edges[index] : edges[index + 1]]


def _boxes(truth: GroundTruth, kept: NDArray[np.bool_]) -> GroundTruth:
    return replace(
        truth,
        boxes=truth.boxes[kept],
        areas=truth.areas[kept],
        labels=truth.labels[kept],
        crowd=truth.crowd[kept],
        image=truth.image[kept],
    )
