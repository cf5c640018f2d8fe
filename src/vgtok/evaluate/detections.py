"""Ground truth and detections as arrays: read from files, or from running a detector over a data set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset, Problem, Role, Row, common_folder, corners
from vgtok.errors import InputError
from vgtok.evaluate.classes import ClassMap, label_map, named_map
from vgtok.files import read_json
from vgtok.parallel import map_with_progress
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from vgtok.detect.config import Head
    from vgtok.detect.detector import Detector
    from vgtok.export.runtime import OnnxDetector


_BOXES = frozenset({Role.OBJECT, Role.CROWD})


@dataclass(frozen=True)
class GroundTruth:
    """Scored boxes and crowds of all images.

    `boxes` (N, 4) x y width height, `areas` (N,), `labels` (N,), `crowd` (N,) bool, `image` (N,) index of the image
    of each; `regions` holds per image the (M, 4) corners of what the protocol ignores, `image_ids` (I,) the ids.
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
        """Number of scored boxes."""
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
        """Return the detections that a mask or index array selects."""
        return Detections(self.boxes[chosen], self.scores[chosen], self.labels[chosen], self.image[chosen])


def ground_truth(dataset: AnnotatedDataset, region_roles: frozenset[Role]) -> GroundTruth:
    """Read every annotation of a data set; rows of `region_roles` become regions."""
    rows: list[Row] = []
    image: list[int] = []
    regions = []
    problems = list(dataset.problems)
    unused = 0
    for index in range(len(dataset.images)):
        parsed = dataset.parse(index)
        problems.extend(parsed.problems)
        inside = [row for row in parsed.rows if row.role in region_roles]
        boxes = [row for row in parsed.rows if row.role in _BOXES - region_roles]
        unused += len(parsed.rows) - len(inside) - len(boxes)
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


def top_scoring(detections: Detections, cap: int) -> Detections:
    """Return the `cap` top-scoring detections of each class in each image, ordered by image, class and score.

    Equal scores are ordered by their boxes, so that the order of a file does not matter; in COCO's own tools it does.
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


def members_by_image(image: NDArray[np.int64], images: int) -> list[NDArray[np.int64]]:
    """Return, for each of `images` images, the positions in `image` (N,) that belong to it, in order."""
    order = np.argsort(image, kind="stable")
    return np.split(order, np.searchsorted(image[order], np.arange(1, images)))


FoundBoxes = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]], NDArray[np.integer[Any]]]
"""Boxes (K, 4) x0 y0 x1 y1, scores (K,) and labels (K,) of one image, as a detector returns them."""


def gather_detections(found: Sequence[FoundBoxes], label_map: NDArray[np.int64]) -> Detections:
    """Return the detections of all images, in order; labels go through `label_map` (K,), and -1 drops them."""
    boxes = np.concatenate([np.zeros((0, 4)), *(one[0] for one in found)]).astype(np.float64)
    # Corners to x, y, width, height.
    boxes[:, 2:] -= boxes[:, :2]
    scores = np.concatenate([np.zeros(0), *(one[1] for one in found)]).astype(np.float64)
    labels = label_map[np.concatenate([np.zeros(0, dtype=np.int64), *(one[2] for one in found)]).astype(np.int64)]
    image = np.repeat(np.arange(len(found)), [len(one[1]) for one in found])
    return Detections(boxes, scores, labels, image).take(labels >= 0)


_KEYS = ("image_id", "category_id", "bbox", "score")


def read_predictions(path: Path, dataset: AnnotatedDataset) -> Detections:
    """Read a COCO results file of a data set; raise `InputError` that names the first invalid detection."""
    rows = read_json(path)
    if not isinstance(rows, list):
        raise InputError(f"{path}: not a COCO results file, which is a json list of {', '.join(_KEYS)}")
    return detections_of(rows, dataset, str(path))


def detections_of(rows: Sequence[Any], dataset: AnnotatedDataset, source: str) -> Detections:
    """Return the detections of COCO results objects; errors call them `source`."""
    try:
        identities = [row["image_id"] for row in rows]
        categories = [row["category_id"] for row in rows]
        boxes = [row["bbox"] for row in rows]
        scores = [row["score"] for row in rows]
    except (KeyError, TypeError):
        number = next(i for i, row in enumerate(rows) if not isinstance(row, dict) or not set(_KEYS) <= row.keys())
        _refuse(source, number, f"lacks one of {', '.join(_KEYS)}: {str(rows[number])[:80]}")
    images = image_names(dataset)
    labels = {category: label for label, category in enumerate(dataset.category_ids)}
    return Detections(
        _numbers(boxes, source),
        _scores(scores, source),
        _looked_up(categories, labels, source, "category_id", f"the data has {_listed(dataset.category_ids)}"),
        _looked_up(identities, images, source, "image_id", f"not among the {len(dataset.images)} images of the data"),
    )


def image_names(dataset: AnnotatedDataset) -> dict[int | str, int]:
    """Return image index by id, path, file name and stem; a name that several images share is left out."""
    names: dict[int | str, int] = dict(zip(dataset.image_ids, range(len(dataset.images)), strict=True))
    folder = common_folder(dataset.images)
    shared = set()
    for index, path in enumerate(dataset.images):
        relative = path.relative_to(folder)
        for name in {relative.as_posix(), relative.with_suffix("").as_posix(), path.name, path.stem}:
            if names.setdefault(name, index) != index:
                shared.add(name)
    return {name: index for name, index in names.items() if name not in shared}


def _looked_up(
    keys: list[Any], table: dict[Any, int], source: str, field: str, explanation: str
) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        # 1.0 and True would match the key 1; only integers and strings are names.
        if not set(map(type, keys)) <= {int, str}:
            raise KeyError
        return np.fromiter((table[key] for key in keys), dtype=np.int64, count=len(keys))
    except KeyError:
        number = next(i for i, key in enumerate(keys) if type(key) not in (int, str) or key not in table)
        _refuse(source, number, f"{field} {keys[number]!r} is unknown: {explanation}")


def _numbers(boxes: list[Any], source: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    wrong = "is not x, y, width, height as four finite numbers"
    if not set(map(type, boxes)) <= {list} or not set(map(len, boxes)) <= {4}:
        number = next(i for i, box in enumerate(boxes) if type(box) is not list or len(box) != 4)
        _refuse(source, number, f"bbox {str(boxes[number])[:60]} {wrong}")
    flat = list(chain.from_iterable(boxes))
    if not set(map(type, flat)) <= {int, float}:
        number = next(i for i, value in enumerate(flat) if type(value) not in (int, float)) // 4
        _refuse(source, number, f"bbox {str(boxes[number])[:60]} {wrong}")
    array = _array(flat).reshape(-1, 4)
    bad = ~np.isfinite(array).all(axis=1) | (array[:, 2:] < 0).any(axis=1)
    if bad.any():
        number = int(bad.argmax())
        finite = np.isfinite(array[number]).all()
        _refuse(source, number, f"bbox {boxes[number]} {'has a negative size' if finite else wrong}")
    return array


def _scores(scores: list[Any], source: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not set(map(type, scores)) <= {int, float}:
        number = next(i for i, score in enumerate(scores) if type(score) not in (int, float))
        _refuse(source, number, f"score {scores[number]!r} is not a number")
    array = _array(scores)
    if not np.isfinite(array).all():
        number = int((~np.isfinite(array)).argmax())
        _refuse(source, number, f"score {scores[number]} is not a finite number")
    return array


def _array(values: list[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        # An integer too large for a float; as infinity it is refused by the checks below.
        return np.array([value if abs(value) < 1e300 else np.inf for value in values], dtype=np.float64)


def _listed(categories: Sequence[int]) -> str:
    shown = ", ".join(map(str, categories[:12]))
    return shown if len(categories) <= 12 else f"{shown}, ... ({len(categories)} in all)"


def _refuse(source: str, number: int, reason: str) -> NoReturn:
    raise InputError(f"{source}: detection {number + 1}: {reason}")


@dataclass(frozen=True)
class Run:
    """The detections of a data set, the mean share of tokens `retained`, and the mean ms per image.

    `unused_classes` are classes of the model that the data lacks, `missing_classes` classes of the data that the model
    lacks; `class_map` has the classes of the model behind each class of the data. `missing_images` is the number of
    image files that do not exist.
    """

    detections: Detections
    retained: float
    ms: float
    unused_classes: tuple[str, ...]
    missing_classes: tuple[str, ...]
    class_map: ClassMap
    missing_images: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the detections, for JSON."""
        return {key: value for key, value in vars(self).items() if key != "detections"}


def run_detector(
    detector: "Detector | OnnxDetector",
    dataset: AnnotatedDataset,
    tokenizer: Tokenizer,
    max_detections: int,
    head: "Head | None" = None,
    progress: bool = False,
    class_map: ClassMap | None = None,
) -> Run:
    """Run a detector with a tokenizer over every image of a data set, one at a time; `progress` shows a bar.

    `class_map` has the classes of the model that stand for a class of the data; further ones do so by name.
    """
    labels = class_labels(detector.names, dataset, class_map)

    def detect(index: int) -> FrameFound | None:
        # A missing file is a problem of the data set, which its reader has already reported.
        path = dataset.images[index]
        if not path.is_file():
            return None
        # AP counts detections of any score.
        result = detector(path, tokenizer=tokenizer, max_detections=max_detections, score_threshold=0.0, head=head)
        ms = sum(vars(result.timings).values())
        return FrameFound((result.boxes, result.scores, result.labels), result.tokens.retained, ms)

    indices = range(len(dataset.images))
    found = map_with_progress(detect, indices, workers=1, label="detecting") if progress else map(detect, indices)
    return gather_run(found, detector.names, dataset, labels)


@dataclass(frozen=True)
class FrameFound:
    """What a detector found in one image, the share of tokens it was read at, and the ms it took."""

    boxes: FoundBoxes
    retained: float
    ms: float


def class_labels(names: Sequence[str], dataset: AnnotatedDataset, class_map: ClassMap | None) -> NDArray[np.int64]:
    """Return the label of the data for each class of a model, -1 for none; raise InputError if none has one."""
    labels = label_map(names, dataset.names, class_map)
    if (labels < 0).all():
        raise InputError(
            f"model: none of its classes ({', '.join(names[:5])}, ...) is one of {dataset.name}'s "
            f"({', '.join(dataset.names[:5])}, ...); map them, e.g. --map {dataset.names[0]}={names[0]}"
        )
    return labels


def gather_run(
    found: Iterable[FrameFound | None], names: Sequence[str], dataset: AnnotatedDataset, labels: NDArray[np.int64]
) -> Run:
    """Return the run of a model with classes `names` over a data set, from what it found in each image, in order.

    None stands for a missing file. Classes the data lacks are dropped as they come.
    """
    boxes: list[FoundBoxes] = []
    retained, times, missing = [], [], 0
    for one in found:
        if one is None:
            missing += 1
            boxes.append((np.zeros((0, 4)), np.zeros(0), np.zeros(0, dtype=np.int64)))
            continue
        kept = labels[one.boxes[2]] >= 0
        boxes.append((one.boxes[0][kept], one.boxes[1][kept], one.boxes[2][kept]))
        retained.append(one.retained)
        times.append(one.ms)
    return Run(
        gather_detections(boxes, labels),
        float(np.mean(retained)) if retained else 0.0,
        float(np.mean(times)) if times else 0.0,
        tuple(name for name, label in zip(names, labels, strict=True) if label < 0),
        tuple(name for label, name in enumerate(dataset.names) if label not in labels),
        named_map(labels, tuple(names), dataset.names),
        missing,
    )
