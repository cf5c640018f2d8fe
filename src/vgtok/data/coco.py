"""COCO-style annotation files, and AI-TOD-v2, which comes as one per split."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vgtok.data.dataset import Annotations
from vgtok.errors import InputError


@dataclass(frozen=True)
class CocoDataset:
    """Images and boxes of one COCO json; `iscrowd` boxes count as ignored."""

    images: tuple[Path, ...]
    names: tuple[str, ...]
    rows: tuple[tuple[dict[str, Any], ...], ...]
    labels: dict[int, int]
    name: str = "coco"

    def annotations(self, index: int) -> Annotations:
        """Boxes of the image at `index`."""
        rows = self.rows[index]
        corners = np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4)
        corners[:, 2:] += corners[:, :2]
        labels = np.array([self.labels[row["category_id"]] for row in rows], dtype=np.int64)
        crowd = np.array([bool(row.get("iscrowd", 0)) for row in rows], dtype=np.bool_)
        return Annotations(corners[~crowd], labels[~crowd], corners[crowd])


def open_coco(annotation_file: Path, image_folder: Path, name: str = "coco") -> CocoDataset:
    """Open a COCO json and the folder its file names are relative to; images in sorted file order."""
    try:
        document = json.loads(annotation_file.read_text())
        categories = sorted(document["categories"], key=lambda category: int(category["id"]))
        by_image = defaultdict(list)
        for row in document["annotations"]:
            by_image[row["image_id"]].append(row)
        entries = sorted((entry["file_name"], entry["id"]) for entry in document["images"])
    except OSError as error:
        raise InputError(f"{annotation_file}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{annotation_file}: not a COCO annotation file ({error!r})") from None
    return CocoDataset(
        images=tuple(image_folder / file_name for file_name, _ in entries),
        names=tuple(category["name"] for category in categories),
        rows=tuple(tuple(by_image[identity]) for _, identity in entries),
        labels={int(category["id"]): label for label, category in enumerate(categories)},
        name=name,
    )


def open_aitodv2(folder: Path) -> CocoDataset:
    """Open the val split of AI-TOD-v2: `annotations/aitodv2_val.json` and `images` or `val`."""
    annotation_file = folder / "annotations" / "aitodv2_val.json"
    image_folder = next((folder / name for name in ("val", "images") if (folder / name).is_dir()), None)
    if image_folder is None:
        raise InputError(f"{folder}: holds neither 'val' nor 'images', where AI-TOD-v2 keeps its pictures")
    return open_coco(annotation_file, image_folder, name="aitodv2")
