"""What to score and what to score it against, as arrays over all images of a data set.

Boxes stay x, y, width, height as their files have them: the COCO tools compute with these, and a detour through
corners would cost the last digit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.rows import Problem, Role, Row, corners

_BOXES = frozenset({Role.OBJECT, Role.CROWD})


@dataclass(frozen=True)
class GroundTruth:
    """Scored boxes and crowds of all images.

    `boxes` (N, 4) x y width height, `areas` (N,), `labels` (N,), `crowd` (N,) bool, `image` (N,) index of the image
    each lies in; `regions` holds per image the (M, 4) corners of what the protocol ignores, `image_ids` (I,) the ids.
    """

    names: tuple[str, ...]
    image_ids: NDArray[np.int64]
    boxes: NDArray[np.float64]
    areas: NDArray[np.float64]
    labels: NDArray[np.int64]
    crowd: NDArray[np.bool_]
    image: NDArray[np.int64]
    regions: tuple[NDArray[np.float64], ...]
    unused_regions: int
    problems: tuple[Problem, ...]

    @property
    def instances(self) -> int:
        """How many boxes are scored."""
        return int((~self.crowd).sum())


@dataclass(frozen=True)
class Detections:
    """Detections of all images: `boxes` (N, 4) x y width height, `scores`, `labels` and `image` (N,) each."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    image: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, chosen: NDArray[Any]) -> "Detections":
        """The detections a mask or index array chooses."""
        return Detections(self.boxes[chosen], self.scores[chosen], self.labels[chosen], self.image[chosen])


def ground_truth(dataset: AnnotatedDataset, region_roles: frozenset[Role]) -> GroundTruth:
    """Read every annotation of a data set; rows of `region_roles` become regions."""
    rows: list[Row] = []
    image: list[int] = []
    regions = []
    problems = list(dataset.problems)
    unused = 0
    for index in range(len(dataset.images)):
        reading = dataset.reading(index)
        problems.extend(reading.problems)
        inside = [row for row in reading.rows if row.role in region_roles]
        boxes = [row for row in reading.rows if row.role in _BOXES - region_roles]
        unused += len(reading.rows) - len(inside) - len(boxes)
        rows.extend(boxes)
        image.extend([index] * len(boxes))
        regions.append(corners([row.box for row in inside]))
    return GroundTruth(
        names=dataset.names,
        image_ids=np.array(dataset.image_ids, dtype=np.int64),
        boxes=np.array([row.box for row in rows], dtype=np.float64).reshape(-1, 4),
        areas=np.array([row.area for row in rows], dtype=np.float64),
        labels=np.array([row.label for row in rows], dtype=np.int64),
        crowd=np.array([row.role is Role.CROWD for row in rows], dtype=np.bool_),
        image=np.array(image, dtype=np.int64),
        regions=tuple(regions),
        unused_regions=unused,
        problems=tuple(problems),
    )


def leading(detections: Detections, cap: int) -> Detections:
    """The `cap` best of each class in each image, in an order that does not depend on how they came.

    Equal scores are ordered by their boxes: COCO's own tools leave them as they came, so that shuffling a file there
    changes the result.
    """
    x, y, width, height = detections.boxes.T
    order = np.lexsort((height, width, y, x, -detections.scores, detections.labels, detections.image))
    ordered = detections.take(order)
    if not len(ordered):
        return ordered
    first = np.r_[True, (np.diff(ordered.image) != 0) | (np.diff(ordered.labels) != 0)]
    positions = np.arange(len(ordered))
    rank = positions - np.maximum.accumulate(np.where(first, positions, 0))
    return ordered.take(rank < cap)
