"""COCO-style annotation files, and AI-TOD-v2, which comes as one per split.

A file written by `vgtok convert` may also hold a list `ignored_regions`, objects like those of `annotations` but of no
scored class; other tools ignore it. Category 0 there is a region, any other number an object that is not scored.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgtok.data.dataset import Problem, Role, Row, RowReader, image_size
from vgtok.errors import InputError
from vgtok.files import is_there, read_json

SPLITS = ("train", "val", "trainval", "test")
KEPT_KEYS = ("score", "truncation", "occlusion", "line")
"""Fields of a VisDrone line other than box and category, kept in a COCO file under the same names."""

_LARGEST_AREA = 1e18
_LARGEST_ID = 2**63
_LARGEST_SIDE = 2**31


@dataclass(frozen=True)
class CocoDataset(RowReader):
    """Images and boxes of one COCO json; `iscrowd` boxes count as ignored."""

    images: tuple[Path, ...]
    names: tuple[str, ...]
    image_ids: tuple[int, ...]
    category_ids: tuple[int, ...]
    sizes: tuple[tuple[int, int] | None, ...]
    objects: tuple[tuple[dict[str, Any], ...], ...]
    regions: tuple[tuple[dict[str, Any], ...], ...]
    problems: tuple[Problem, ...] = ()
    name: str = "coco"

    def size(self, index: int) -> tuple[int, int]:
        """Return width and height from the json, else from the image file."""
        return self.sizes[index] or image_size(self.images[index])

    def _listed_size(self, index: int) -> tuple[int, int] | None:
        """Return the size in the json; without one boxes are not checked, since the image may be missing."""
        return self.sizes[index]

    def _rows(self, index: int, size: tuple[int, int] | None, unreadable: list[Problem]) -> Iterator[tuple[Row, str]]:
        # Ignored regions are sorted among the objects by their ids.
        labels = {category: label for label, category in enumerate(self.category_ids)}
        entries = [(entry, False) for entry in self.objects[index]] + [(entry, True) for entry in self.regions[index]]
        if self.regions[index]:
            entries.sort(key=lambda pair: _order(pair[0]))
        for entry, ignored in entries:
            where = f"annotation {entry.get('id', '?')} of {self.images[index].name}"
            box = _box(entry)
            if box is None:
                unreadable.append(Problem("annotation without a box of four numbers, skipped", where, unreadable=True))
                continue
            category = entry["category_id"]
            if ignored:
                role = Role.REGION if category == 0 else Role.OTHERS
            else:
                role = Role.CROWD if entry.get("iscrowd") else Role.OBJECT
            extra = {key: entry[key] for key in KEPT_KEYS if key in entry}
            yield Row(box, role, labels.get(category, -1), _area(entry, box), extra), where


def open_coco(annotation_file: Path, image_folder: Path, name: str = "coco") -> CocoDataset:
    """Open a COCO json and the folder its file names are relative to; images are in sorted file order."""
    document = _document(annotation_file)
    if not image_folder.is_dir():
        raise InputError(f"{image_folder}: no such folder; the images of {annotation_file} should be there")
    try:
        categories = sorted((int(entry["id"]), str(entry["name"])) for entry in document["categories"])
        entries = sorted(document["images"], key=lambda entry: str(entry["file_name"]))
        identities = tuple(int(entry["id"]) for entry in entries)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise InputError(f"{annotation_file}: not a COCO annotation file ({error!r})") from None
    if not all(isinstance(entry["file_name"], str) and "\0" not in entry["file_name"] for entry in entries):
        raise InputError(f"{annotation_file}: an image whose file_name is not the name of a file")
    if not all(abs(number) < _LARGEST_ID for number in (*identities, *(category for category, _ in categories))):
        raise InputError(f"{annotation_file}: an id that is not below 2 ** 63")
    if len(set(identities)) != len(identities):
        raise InputError(f"{annotation_file}: two images share an id; every image needs its own")
    if not identities:
        raise InputError(f"{annotation_file}: lists no images")
    known = {category for category, _ in categories}
    objects = _group_annotations(annotation_file, document["annotations"], identities, known)
    listed = document.get("ignored_regions")
    regions = _group_annotations(annotation_file, listed if isinstance(listed, list) else (), identities, None)
    images = tuple(image_folder / entry["file_name"] for entry in entries)
    missing = (path for path in images if not is_there(path))
    return CocoDataset(
        images=images,
        names=tuple(name for _, name in categories),
        image_ids=identities,
        category_ids=tuple(category for category, _ in categories),
        sizes=tuple(_size(entry) for entry in entries),
        objects=tuple(tuple(objects[identity]) for identity in identities),
        regions=tuple(tuple(regions[identity]) for identity in identities),
        problems=tuple(Problem("image file missing, its boxes still count", str(path)) for path in missing),
        name=name,
    )


def open_aitodv2(folder: Path, split: str = "val") -> CocoDataset:
    """Open a split of AI-TOD-v2: `annotations/aitodv2_SPLIT.json`, images in `SPLIT` or `images`."""
    if split not in SPLITS:
        raise InputError(f"aitodv2: '{split}' is not a split; there are {', '.join(SPLITS)}")
    annotation_file = folder / "annotations" / f"aitodv2_{split}.json"
    image_folder = next((folder / name for name in (split, "images") if (folder / name).is_dir()), None)
    if image_folder is None:
        raise InputError(f"{folder}: holds neither '{split}' nor 'images', where AI-TOD-v2 keeps its images")
    return open_coco(annotation_file, image_folder, name="aitodv2")


def _document(path: Path) -> Mapping[str, Any]:
    document = read_json(path)
    keys = ("images", "annotations", "categories")
    if not isinstance(document, dict) or not all(isinstance(document.get(key), list) for key in keys):
        raise InputError(f"{path}: not a COCO annotation file, which holds the lists {', '.join(keys)}")
    return document


def _group_annotations(
    path: Path, rows: Iterable[Any], identities: Sequence[int], categories: set[int] | None
) -> defaultdict[int, list[dict[str, Any]]]:
    """Return annotations by image id; raise `InputError` for an image or category the file does not list."""
    known = set(identities)
    grouped: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(key), int) for key in ("image_id", "category_id")):
            raise InputError(f"{path}: an annotation without whole image_id and category_id: {str(row)[:80]}")
        if row["image_id"] not in known:
            raise InputError(f"{path}: annotation {row.get('id')} belongs to image {row['image_id']}, not in the file")
        if categories is not None and row["category_id"] not in categories:
            raise InputError(
                f"{path}: annotation {row.get('id')} has category {row['category_id']}, not among the categories"
            )
        grouped[row["image_id"]].append(row)
    return grouped


def _order(entry: Mapping[str, Any]) -> int:
    identity = entry.get("id")
    return identity if isinstance(identity, int) else 0


def _box(entry: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    box = entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(type(value) in (int, float) for value in box):
        return None
    return (box[0], box[1], box[2], box[3])


def _area(entry: Mapping[str, Any], box: tuple[float, float, float, float]) -> float:
    """Return the area the file gives for an outline, else that of the box."""
    area = entry.get("area")
    return area if isinstance(area, int | float) and 0 <= area < _LARGEST_AREA else box[2] * box[3]


def _size(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = entry.get("width"), entry.get("height")
    if not (isinstance(width, int) and isinstance(height, int)):
        return None
    return (width, height) if min(width, height) > 0 and max(width, height) < _LARGEST_SIDE else None
