"""VisDrone2019-DET in its own layout: `images/*.jpg` and `annotations/*.txt`.

A line is left, top, width, height, score, category, truncation, occlusion. Categories 1 to 10 are objects, 0 is an
ignored region and 11, 'others', an object that is not scored; a score of 0 excludes any object from the evaluation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgtok.data.dataset import FileReader, Problem, Role, Row, images_in
from vgtok.errors import InputError
from vgtok.files import read_lines
from vgtok.names import VISDRONE

REGION = 0
OTHERS = 11
CATEGORIES = tuple(range(1, len(VISDRONE) + 1))

_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
"""A whole number that a float holds exactly; a longer one is no place in an image."""


@dataclass(frozen=True)
class VisDrone(FileReader):
    """One split of VisDrone2019-DET."""

    images: tuple[Path, ...]
    annotation_folder: Path
    problems: tuple[Problem, ...] = ()
    name: str = "visdrone"
    names: tuple[str, ...] = VISDRONE
    category_ids: tuple[int, ...] = CATEGORIES

    def _rows(self, index: int, size: tuple[int, int] | None, unreadable: list[Problem]) -> Iterator[tuple[Row, str]]:
        path = self.annotation_folder / f"{self.images[index].stem}.txt"
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            where = f"{path.name}, line {number}"
            values = _numbers(_fields(line))
            if values is None or len(values) != 8:
                kind = "line that is not eight numbers, skipped"
                unreadable.append(Problem(kind, f"{where}: '{line[:60]}'", unreadable=True))
                continue
            yield _row(values, line, f"{path}, line {number}"), where


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
    """Return the line of a row: unchanged if it came from VisDrone, else with score 1 and no occlusion."""
    scored = row.extra.get("score", int(row.role is Role.OBJECT))
    fields = [*row.box, scored, category, row.extra.get("truncation", 0), row.extra.get("occlusion", 0)]
    # Keep the original spelling only while its values are unchanged.
    line = row.extra.get("line")
    if isinstance(line, str) and _numbers(_fields(line)) == fields:
        return line
    return ",".join(map(str, fields))


def category_of(row: Row) -> int:
    """Return the category number of a row whose label is an index into VISDRONE."""
    if row.role is Role.REGION or row.label < 0:
        return OTHERS if row.role is Role.OTHERS else REGION
    return row.label + 1


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
    """Split a line; a trailing comma, as in some official files, is allowed."""
    return line.rstrip(", \t").split(",")


def _numbers(fields: list[str]) -> list[int | float] | None:
    """Return the numbers of a line; integers stay integers, so that they are written as they were read."""
    try:
        return [int(field) if _WHOLE.fullmatch(field.strip()) else float(field) for field in fields]
    except ValueError:
        return None
