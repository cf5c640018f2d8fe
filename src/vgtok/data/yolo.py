"""YOLO folders: a YAML with `path`, `train`, `val`, `test` and `names`, and beside each `images` folder a `labels` one.

A label line is class, center x, center y, width, height, all but the class as fractions of the image. An image without
a label file has no objects, as in every YOLO trainer.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgtok.data.dataset import IMAGE_SUFFIXES, FileReader, Problem, Role, Row
from vgtok.errors import InputError
from vgtok.files import is_there, read_lines

SPLITS = ("train", "val", "test")

_DEEPEST = 50
"""Most nested brackets: parsing takes quadratic time in the depth, and a data set needs two."""
_LARGEST_CLASS = 2**31


@dataclass(frozen=True)
class YoloDataset(FileReader):
    """One split of a YOLO data set; its category ids are the class numbers of the YAML."""

    images: tuple[Path, ...]
    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    problems: tuple[Problem, ...] = ()
    name: str = "yolo"

    def _rows(self, index: int, size: tuple[int, int] | None, unreadable: list[Problem]) -> Iterator[tuple[Row, str]]:
        path = label_file(self.images[index])
        if not is_there(path):
            return
        sides = size or self.size(index)
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
                kind = "line that is not a class and four numbers, skipped"
                unreadable.append(Problem(kind, f"{where}: '{line[:60]}'", unreadable=True))
                continue
            if category not in labels:
                raise InputError(f"{path}, line {number}: class {category:g} is not among the names of the YAML")
            center_x, center_y, width, height = (share * sides[i % 2] for i, share in enumerate(shares))
            box = (center_x - width / 2, center_y - height / 2, width, height)
            yield Row(box, Role.OBJECT, labels[int(category)], width * height), where


def open_yolo(file: Path, split: str = "val") -> YoloDataset:
    """Open a split of the data set that a YAML describes."""
    if split not in SPLITS:
        raise InputError(f"yolo: '{split}' is not a split; there are {', '.join(SPLITS)}")
    document = _document(file)
    names = _names(file, document.get("names"))
    if split not in document or not document[split]:
        there = yolo_splits(file)
        raise InputError(f"{file}: names no '{split}' split, but {', '.join(there)}; use yolo:{file}:{there[0]}")
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


def yolo_splits(file: Path) -> tuple[str, ...]:
    """Return the splits that a YAML names; raise if it names none."""
    document = _document(file)
    found = tuple(split for split in SPLITS if document.get(split))
    if not found:
        raise InputError(f"{file}: names no split; it needs 'train:', and better 'val:' too")
    return found


def label_file(image: Path) -> Path:
    """Return the label file of an image: the last folder called `images` becomes `labels`."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts) / f"{image.stem}.txt"


def _images(place: Path) -> Iterator[Path]:
    """Yield the images under a folder, or those a text file lists relative to itself."""
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
    # Invalid dates, numbers and keys raise errors of many kinds.
    except Exception as error:
        raise InputError(f"{file}: not a YAML file ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(document, dict):
        raise InputError(f"{file}: not a YOLO data set, which names its splits and classes")
    return document


def _lines(path: Path) -> list[str]:
    """Return the lines of a label file; invalid characters make a line unreadable, not the file."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _depth(text: str) -> int:
    """Return how deep brackets are nested, without regard to quotes and comments."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        deepest = max(deepest, depth)
    return deepest


def _places(file: Path, document: Mapping[str, Any], split: str) -> list[str]:
    """Return the folders or files the YAML names for a split."""
    places = document[split] if isinstance(document[split], list) else [document[split]]
    if not all(isinstance(place, str | int | float) and "\0" not in str(place) for place in places):
        raise InputError(f"{file}: '{split}' must be the name of a folder or file, or a list of such names")
    return [str(place) for place in places]


def _names(file: Path, names: Any) -> dict[int, str]:
    """Return class numbers and names, from a list or a mapping."""
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
