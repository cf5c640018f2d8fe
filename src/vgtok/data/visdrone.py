"""VisDrone2019-DET in its own layout: `images/*.jpg` and `annotations/*.txt`.

A line is left, top, width, height, score, category, truncation, occlusion. Categories 1 to 10 are objects, 0 is an
ignored region and 11, 'others', is ignored likewise.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vgtok.data.dataset import Annotations, images_in
from vgtok.errors import InputError

NAMES = (
    "pedestrian",
    "people",
    "bicycle",
    "car",
    "van",
    "truck",
    "tricycle",
    "awning-tricycle",
    "bus",
    "motor",
)


@dataclass(frozen=True)
class VisDrone:
    """One split of VisDrone2019-DET."""

    images: tuple[Path, ...]
    annotation_folder: Path
    name: str = "visdrone"
    names: tuple[str, ...] = NAMES

    def annotations(self, index: int) -> Annotations:
        """Boxes of categories 1 to 10; regions of categories 0 and 11 as ignored."""
        path = self.annotation_folder / f"{self.images[index].stem}.txt"
        rows = _rows(path)
        corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:4]], axis=1)
        category = rows[:, 5].astype(np.int64)
        scored = (category >= 1) & (category <= len(NAMES))
        return Annotations(corners[scored], category[scored] - 1, corners[~scored])


def open_visdrone(folder: Path) -> VisDrone:
    """Open a folder that holds `images` and `annotations`."""
    images = images_in(folder / "images")
    if not (folder / "annotations").is_dir():
        raise InputError(f"{folder / 'annotations'}: no such folder")
    return VisDrone(images, folder / "annotations")


def _rows(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The (N, 8) numbers of one annotation file; a trailing comma, as in some official files, is allowed."""
    rows = []
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = [float(field) for field in line.rstrip(", \t").split(",")]
        except ValueError:
            values = []
        if len(values) != 8:
            raise InputError(f"{path}, line {number}: '{line}' is not eight comma-separated numbers")
        rows.append(values)
    return np.array(rows, dtype=np.float64).reshape(-1, 8)
