"""The rules a benchmark is scored by: how many detections count, what is ignored, which size bands are reported.

VisDrone and AI-TOD-v2 have the rules of their papers, so that neither COCO's cap of 100 nor a forgotten ignored region
can slip in; plain COCO takes any cap. Areas are those of the exact union of ignored regions, not of a pixel grid.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import Role
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, GroundTruth, members_by_image
from vgtok.overlap import iou_xywh

EVERYTHING = (0.0, 1e10)
"""The area range of every box, in square pixels, as the COCO tools have it."""

_COCO_BANDS = {"APS": (0.0, 32.0**2), "APM": (32.0**2, 96.0**2), "APL": (96.0**2, EVERYTHING[1])}
_AITOD_BANDS = {
    "APvt": (0.0, 8.0**2),
    "APt": (8.0**2, 16.0**2),
    "APs": (16.0**2, 32.0**2),
    "APm": (32.0**2, EVERYTHING[1]),
}


@dataclass(frozen=True)
class ScoringRules:
    """The rules of one protocol.

    `max_detections` is the number of top-scoring detections of one class that count in one image. `bands` maps the
    name of an AP to its range of box areas; like the COCO tools, a box on the edge of two bands is scored in both.
    `region_roles` are the annotations whose union is ignored. `drops_boxes` also drops the scored boxes in that union,
    and with them every detection there; otherwise a detection that matches a scored box (IoU 0.5 or more) is kept.
    `class_band` is the band whose AP is also reported per class.
    """

    name: str
    title: str
    max_detections: int
    bands: Mapping[str, tuple[float, float]]
    region_roles: frozenset[Role] = frozenset()
    drops_boxes: bool = False
    class_band: str | None = None


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        ScoringRules(
            "visdrone",
            "VisDrone: COCO AP; detections at least half in ignored regions or others count neither way",
            500,
            _COCO_BANDS,
            frozenset({Role.REGION, Role.OTHERS, Role.CROWD}),
        ),
        ScoringRules(
            "visdrone-toolkit",
            "VisDrone as its toolkit filters: COCO AP; boxes and detections at least half in ignored regions dropped",
            500,
            _COCO_BANDS,
            frozenset({Role.REGION}),
            drops_boxes=True,
        ),
        ScoringRules("aitodv2", "AI-TOD-v2: COCO AP in its four size bands", 1500, _AITOD_BANDS, class_band="APvt"),
        ScoringRules("coco", "COCO AP", 100, _COCO_BANDS),
    )
}
"""All protocols by name."""


def protocol_for(name: str | None, data: str, max_detections: int | None) -> ScoringRules:
    """Return the protocol of that name, by default that of the data set; only plain COCO takes another cap."""
    chosen = name or (data if data in PROTOCOLS else "coco")
    if chosen not in PROTOCOLS:
        raise InputError(f"--protocol: '{chosen}' is not a protocol; there are {', '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[chosen]
    if max_detections is None or max_detections == protocol.max_detections:
        return protocol
    if chosen != "coco":
        raise InputError(
            f"--max-detections: {chosen} fixes its cap at {protocol.max_detections}; --protocol coco takes any"
        )
    if max_detections < 1:
        raise InputError(f"--max-detections: {max_detections} is not a number of detections, 1 or more")
    return replace(protocol, max_detections=max_detections)


INSIDE = 0.5
"""A box with at least this share of its area in the union of ignored regions is inside."""

_FOUND = 0.5
"""A detection with at least this IoU with a scored box of its class is never ignored."""


def without_ignored(truth: GroundTruth, detections: Detections, drops_boxes: bool) -> tuple[GroundTruth, Detections]:
    """Remove what a protocol ignores: detections inside regions, and with `drops_boxes` the boxes inside too.

    Where boxes are kept, so is every detection that matches one of its class.
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
    """Return the share (N,) of each box (N, 4: x y width height) in the union of regions (M, 4 corners)."""
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
    """Yield rectangles without overlap that cover exactly what (M, 4) regions cover: one band per pair of edges."""
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
    for index, members in enumerate(members_by_image(image, len(regions))):
        if len(members) and len(regions[index]):
            inside[members] = covered(boxes[members], regions[index]) >= INSIDE
    return inside


def _finds_a_box(detections: Detections, truth: GroundTruth) -> NDArray[np.bool_]:
    """Return whether each detection has an IoU of `_FOUND` with a scored box of its class in its image."""
    found = np.zeros(len(detections), dtype=np.bool_)
    images = len(truth.regions)
    scored = np.flatnonzero(~truth.crowd)
    places = members_by_image(truth.image[scored], images)
    for index, members in enumerate(members_by_image(detections.image, images)):
        if not len(members):
            continue
        boxes = scored[places[index]]
        overlap = iou_xywh(detections.boxes[members], truth.boxes[boxes])
        overlap[detections.labels[members, None] != truth.labels[None, boxes]] = 0
        found[members] = (overlap >= _FOUND).any(axis=1)
    return found


def _boxes(truth: GroundTruth, kept: NDArray[np.bool_]) -> GroundTruth:
    return replace(
        truth,
        boxes=truth.boxes[kept],
        areas=truth.areas[kept],
        labels=truth.labels[kept],
        crowd=truth.crowd[kept],
        image=truth.image[kept],
    )
