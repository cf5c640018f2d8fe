"""YOLO folders: a YAML with `path`, `train`, `val`, `test` and `names`, and beside each `images` folder a `labels` one.

A label line is class, centre x, centre y, width, height, all but the class as shares of the image. An image without
a label file has no objects, as every YOLO trainer takes it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgtok.data.dataset import IMAGE_SUFFIXES, Annotations
from vgtok.data.rows import Problem, Reading, Role, Row, annotations_of, image_size, numbered, reading_of
from vgtok.errors import InputError
from vgtok.files import is_there, read_lines

SPLITS = ("train", "val", "test")

_DEEPEST = 50
"""Brackets inside brackets; the parser takes quadratic time over more, and a data set needs two."""
_LARGEST_CLASS = 2**31


@dataclass(frozen=True)
class YoloDataset:
    """One split of a YOLO data set; its category ids are the class numbers of the YAML."""

    images: tuple[Path, ...]
    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    problems: tuple[Problem, ...] = ()
    name: str = "yolo"

    @property
    def image_ids(self) -> tuple[int, ...]:
        """The file stems where they are numbers, else 1, 2, 3 and on in sorted file order."""
        return numbered(self.images)

    def annotations(self, index: int) -> Annotations:
        """Boxes of the image at `index`; the format has no ignored regions."""
        return annotations_of(self.reading(index))

    def reading(self, index: int) -> Reading:
        """Every line of the image at `index`."""
        broken: list[Problem] = []
        size = self.size(index)
        judged = reading_of(self._rows(label_file(self.images[index]), size, broken), size)
        return Reading(judged.rows, (*broken, *judged.problems))

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of the image at `index`."""
        return image_size(self.images[index])

    def _rows(self, path: Path, size: tuple[int, int], broken: list[Problem]) -> Iterator[tuple[Row, str]]:
        if not is_there(path):
            return
        labels = {category: label for label, category in enumerate(self.category_ids)}
        for number, line in enumerate(_lines(path), start=1):
            if not line.strip():
                continue
            where = f"{path.name}, line {number}"
            try:
                category, *shares = (float(field) for field in line.split())
            except ValueError:
                shares = []
            if len(shares) != 4:
                broken.append(
                    Problem(
                        "line that is not a class and four numbers, skipped", f"{where}: '{line[:60]}'", unreadable=True
                    )
                )
                continue
            if category not in labels:
                raise InputError(f"{path}, line {number}: class {category:g} is not among the names of the YAML")
            centre_x, centre_y, width, height = (share * size[i % 2] for i, share in enumerate(shares))
            box = (centre_x - width / 2, centre_y - height / 2, width, height)
            yield Row(box, Role.OBJECT, labels[int(category)], width * height), where


def open_yolo(file: Path, split: str = "val") -> YoloDataset:
    """Open a split of the data set a YAML describes."""
    if split not in SPLITS:
        raise InputError(f"yolo: '{split}' is not a split; there are {', '.join(SPLITS)}")
    document = _document(file)
    names = _names(file, document.get("names"))
    if split not in document or not document[split]:
        raise InputError(f"{file}: names no '{split}' split")
    base = document.get("path") or "."
    if not isinstance(base, str) or "\0" in base:
        raise InputError(f"{file}: 'path' must be the name of a folder")
    root, places = file.parent / base, _places(file, document, split)
    try:
        listed = sorted({path for place in places for path in _images(root / place)})
        missing = [path for path in listed if not path.is_file()]
    except OSError as error:
        raise InputError(f"{file}: its '{split}' split cannot be read ({error.strerror or error})") from None
    gone = set(missing)
    images = tuple(path for path in listed if path not in gone)
    if not images:
        raise InputError(f"{file}: no images in {', '.join(str(root / place) for place in places)}")
    problems = [Problem("image file missing, skipped", str(path)) for path in missing]
    return YoloDataset(images, tuple(names.values()), tuple(names), tuple(problems))


def label_file(image: Path) -> Path:
    """Where the labels of an image lie: the last folder called `images` becomes `labels`."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts) / f"{image.stem}.txt"


def _images(place: Path) -> Iterator[Path]:
    """Images under a folder, or listed in a text file relative to it."""
    if place.is_dir():
        yield from (path for path in place.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    elif place.suffix == ".txt" and place.is_file():
        for line in read_lines(place):
            if line.strip():
                yield Path(os.path.normpath(place.parent / line.strip()))
    else:
        raise InputError(f"{place}: neither a folder of images nor a text file that lists them")


def _document(file: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise InputError("yolo: reading a YAML needs PyYAML; pip install 'vgtok[evaluate]'") from None
    text = "\n".join(read_lines(file))
    if _depth(text) > _DEEPEST:
        raise InputError(f"{file}: not a YOLO data set; its brackets are nested more than {_DEEPEST} deep")
    try:
        document = yaml.safe_load(text)
    # The parser lets out what its converters meet: dates, numbers and keys that are none raise errors of any kind.
    except Exception as error:
        raise InputError(f"{file}: not a YAML file ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(document, dict):
        raise InputError(f"{file}: not a YOLO data set, which names its splits and classes")
    return document


def _lines(path: Path) -> list[str]:
    """The lines of a label file; characters that are none make a line unreadable, not the file."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _depth(text: str) -> int:
    """How deep brackets are nested, quotes and comments disregarded."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        deepest = max(deepest, depth)
    return deepest


def _places(file: Path, document: Mapping[str, Any], split: str) -> list[str]:
    """What the YAML names as a split: one place or several."""
    places = document[split] if isinstance(document[split], list) else [document[split]]
    if not all(isinstance(place, str | int | float) and "\0" not in str(place) for place in places):
        raise InputError(f"{file}: '{split}' must be the name of a folder or file, or a list of such names")
    return [str(place) for place in places]


def _names(file: Path, names: Any) -> dict[int, str]:
    """Class numbers and names, from either a list or a mapping."""
    if isinstance(names, list):
        names = dict(enumerate(names))
    if (
        not isinstance(names, dict)
        or not names
        or not all(isinstance(number, int) and abs(number) < _LARGEST_CLASS for number in names)
        or not all(isinstance(name, str | int | float) for name in names.values())
    ):
        raise InputError(f"{file}: 'names' must list the classes or map their numbers to names")
    return {number: str(names[number]) for number in sorted(names)}
