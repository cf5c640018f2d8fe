"""VisDrone2019-DET in its own layout: `images/*.jpg` and `annotations/*.txt`.

A line is left, top, width, height, score, category, truncation, occlusion. Categories 1 to 10 are objects, 0 is an
ignored region and 11, 'others', an object nobody scores; a score of 0 takes any object out of the evaluation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgtok.data.dataset import Annotations, images_in
from vgtok.data.rows import Problem, Reading, Role, Row, annotations_of, image_size, numbered, reading_of
from vgtok.errors import InputError
from vgtok.files import read_lines
from vgtok.names import VISDRONE

REGION = 0
OTHERS = 11
CATEGORIES = tuple(range(1, len(VISDRONE) + 1))

_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
"""A whole number of a size that a float can stand beside; a longer one is no place in an image."""


@dataclass(frozen=True)
class VisDrone:
    """One split of VisDrone2019-DET."""

    images: tuple[Path, ...]
    annotation_folder: Path
    problems: tuple[Problem, ...] = ()
    name: str = "visdrone"
    names: tuple[str, ...] = VISDRONE
    category_ids: tuple[int, ...] = CATEGORIES

    @property
    def image_ids(self) -> tuple[int, ...]:
        """1, 2, 3 and on in sorted file order: the layout has no ids of its own."""
        return numbered(self.images)

    def annotations(self, index: int) -> Annotations:
        """Boxes of categories 1 to 10; regions of categories 0 and 11 as ignored."""
        return annotations_of(self.reading(index))

    def reading(self, index: int) -> Reading:
        """Every line of the image at `index`."""
        path = self.annotation_folder / f"{self.images[index].stem}.txt"
        broken: list[Problem] = []
        judged = reading_of(_rows(path, broken), self.size(index))
        return Reading(judged.rows, (*broken, *judged.problems))

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of the image at `index`."""
        return image_size(self.images[index])


def open_visdrone(folder: Path) -> VisDrone:
    """Open a folder that holds `images` and `annotations`."""
    images = images_in(folder / "images")
    annotations = folder / "annotations"
    if not annotations.is_dir():
        raise InputError(f"{annotations}: no such folder")
    stems = {path.stem for path in images}
    orphans = [path.name for path in sorted(annotations.glob("*.txt")) if path.stem not in stems]
    problems = tuple(Problem("annotation file without an image, skipped", name) for name in orphans)
    return VisDrone(images, annotations, problems)


def line_of(row: Row, category: int) -> str:
    """The line of a row: as it was read where it came from VisDrone, else with score 1 and nothing hidden."""
    scored = row.extra.get("score", int(row.role is Role.OBJECT))
    fields = [*row.box, scored, category, row.extra.get("truncation", 0), row.extra.get("occlusion", 0)]
    # The spelling of a line is only worth keeping while it still says the same.
    line = row.extra.get("line")
    if isinstance(line, str) and _numbers(_fields(line)) == fields:
        return line
    return ",".join(map(str, fields))


def category_of(row: Row) -> int:
    """The category number of a row whose label counts in VISDRONE."""
    if row.role is Role.REGION or row.label < 0:
        return OTHERS if row.role is Role.OTHERS else REGION
    return row.label + 1


def _rows(path: Path, broken: list[Problem]) -> Iterator[tuple[Row, str]]:
    """Rows with their places; lines that are not eight numbers go to `broken`."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        values = _numbers(_fields(line))
        if values is None or len(values) != 8:
            broken.append(
                Problem("line that is not eight numbers, skipped", f"{where}: '{line[:60]}'", unreadable=True)
            )
            continue
        yield _row(values, line, f"{path}, line {number}"), where


def _row(values: list[Any], line: str, where: str) -> Row:
    x, y, width, height, score, category, truncation, occlusion = values
    if category not in range(OTHERS + 1):
        raise InputError(f"{where}: category {category} is not one of VisDrone's, 0 to {OTHERS}")
    label = int(category) - 1 if category in CATEGORIES else -1
    role = Role.REGION if category == REGION else Role.OTHERS if category == OTHERS or score == 0 else Role.OBJECT
    extra = {"score": score, "truncation": truncation, "occlusion": occlusion}
    row = Row((x, y, width, height), role, label, width * height, extra)
    if line_of(row, category) != line:
        extra["line"] = line
    return row


def _fields(line: str) -> list[str]:
    """A trailing comma, as in some official files, is allowed."""
    return line.rstrip(", \t").split(",")


def _numbers(fields: list[str]) -> list[int | float] | None:
    """Whole numbers stay whole, so that they are written as they were read."""
    try:
        return [int(field) if _WHOLE.fullmatch(field.strip()) else float(field) for field in fields]
    except ValueError:
        return None
