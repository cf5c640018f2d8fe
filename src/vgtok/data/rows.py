"""One annotation as its file gives it, and what is wrong with it.

Every reader turns a line or json object into a `Row` and passes it through `judge`, so that all formats treat
boxes of no area or outside their image alike: skipped or kept, but always with a `Problem` that names the place.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from vgtok.data.dataset import Annotations
from vgtok.errors import InputError

_NAMED_AT_ONCE = 3
"""Problems of one kind a summary names one by one before it only counts."""

_LARGEST = 1e9
"""Pixels beyond which a coordinate is a slip of the file."""


class Role(StrEnum):
    """What an annotation means to a protocol."""

    OBJECT = "object"  # scored
    CROWD = "crowd"  # a group of one class, as COCO's iscrowd
    REGION = "region"  # an area nobody annotated
    OTHERS = "others"  # an object of none of the classes


@dataclass(frozen=True, slots=True)
class Row:
    """One annotation: `box` is x, y, width, height as the file has them; `label` is -1 where there is no class.

    `extra` holds what only one format says (VisDrone's truncation and occlusion), so that a round trip can return it.
    """

    box: tuple[float, float, float, float]
    role: Role
    label: int
    area: float
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a user should know about the data: its kind, with what was done about it, and where it is.

    `unreadable` marks a line or object that could not even be read, so that nobody knows what is missing.
    """

    kind: str
    where: str
    unreadable: bool = False


@dataclass(frozen=True)
class Reading:
    """The usable annotations of one image in file order, and the problems met."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...] = ()


def judge(row: Row, where: str, size: tuple[int, int] | None) -> tuple[Row | None, Problem | None]:
    """Decide on a box in an image of `size` (width, height; None where unknown): the row or None, and why."""
    x, y, width, height = row.box
    # Also false for NaN, which no comparison holds for.
    if not all(abs(value) < _LARGEST for value in row.box):
        return None, Problem("box that is not a place in an image, skipped", where)
    if width <= 0 or height <= 0:
        return None, Problem("box without area, skipped", where)
    if size is None:
        return row, None
    if x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0:
        return None, Problem("box outside its image, skipped", where)
    # A tenth of a pixel: normalised coordinates come back from six decimals that far out.
    slack = 0.1
    if x < -slack or y < -slack or x + width - slack > size[0] or y + height - slack > size[1]:
        return row, Problem("box partly outside its image, kept as it is", where)
    return row, None


def reading_of(candidates: Iterable[tuple[Row, str]], size: tuple[int, int] | None) -> Reading:
    """Judge every row of one image."""
    rows, problems = [], []
    for candidate, where in candidates:
        row, problem = judge(candidate, where, size)
        if row is not None:
            rows.append(row)
        if problem is not None:
            problems.append(problem)
    return Reading(tuple(rows), tuple(problems))


def annotations_of(reading: Reading) -> Annotations:
    """The arrays of one image.

    Arrays cannot carry problems: odd boxes become warnings, and what could not be read is refused.
    """
    for problem in reading.problems:
        if problem.unreadable:
            raise InputError(f"{problem.where}: {problem.kind.removesuffix(', skipped')}")
    for line in summarize(reading.problems):
        warnings.warn(line, stacklevel=3)
    objects = [row for row in reading.rows if row.role is Role.OBJECT]
    ignored = [row for row in reading.rows if row.role is not Role.OBJECT]
    return Annotations(
        boxes=corners([row.box for row in objects]),
        labels=np.array([row.label for row in objects], dtype=np.int64),
        ignored=corners([row.box for row in ignored]),
    )


def corners(boxes: Sequence[tuple[float, float, float, float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N, 4) x0 y0 x1 y1 of boxes given as x, y, width, height."""
    array = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    array[:, 2:] += array[:, :2]
    return array


def summarize(problems: Iterable[Problem]) -> list[str]:
    """One line per kind of problem: how many, and where the first ones are."""
    problems = list(problems)
    lines = []
    for kind, count in sorted(Counter(problem.kind for problem in problems).items()):
        places = [problem.where for problem in problems if problem.kind == kind][:_NAMED_AT_ONCE]
        more = f" and {count - len(places)} more" if count > len(places) else ""
        lines.append(f"{count} x {kind}: {'; '.join(places)}{more}")
    return lines


def image_size(path: Path) -> tuple[int, int]:
    """Width and height from the header of an image file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, UnidentifiedImageError):
        raise InputError(f"{path}: cannot be read as an image, so its boxes cannot be checked") from None


def numbered(images: Sequence[Path]) -> tuple[int, ...]:
    """Integer ids for images that come without: their stems where all are distinct numbers, else 1, 2, 3 and on."""
    stems = [path.stem for path in images]
    if all(stem.isascii() and stem.isdigit() for stem in stems) and len({int(stem) for stem in stems}) == len(stems):
        return tuple(int(stem) for stem in stems)
    return tuple(range(1, len(images) + 1))


def common_folder(images: Sequence[Path]) -> Path:
    """The folder all images lie in or below."""
    parents = {path.parent for path in images}
    folder = min(parents, key=lambda parent: len(parent.parts))
    while not all(parent.is_relative_to(folder) for parent in parents):
        folder = folder.parent
    return folder
