"""One interface over every annotated set of images, and the names by which the command line opens them.

`visdrone:DIR`, `aitodv2:DIR`, `coco:JSON:IMAGES` and `yolo:YAML` open a data set in its own layout; a plain folder is
a set without annotations. AI-TOD-v2 and YOLO open their val split unless another follows, as in `aitodv2:DIR:test`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

if TYPE_CHECKING:
    from vgtok.data.rows import Problem, Reading

SPECS = ("visdrone:DIR", "aitodv2:DIR", "coco:JSON:IMAGES", "yolo:YAML")

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp"})


@dataclass(frozen=True)
class Annotations:
    """Ground truth of one image, in its own pixels.

    `boxes` is (N, 4) float64 x0 y0 x1 y1 of the scored objects, `labels` (N,) their index into the data set's names,
    `ignored` (M, 4) the regions no protocol scores.
    """

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    ignored: NDArray[np.float64]


class Dataset(Protocol):
    """Images in sorted file order, each with its annotations."""

    @property
    def name(self) -> str:
        """What the set is called in reports, e.g. 'visdrone'."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order; empty where nothing is annotated."""

    @property
    def images(self) -> tuple[Path, ...]:
        """The image files."""

    def annotations(self, index: int) -> Annotations:
        """Ground truth of the image at `index`."""


class AnnotatedDataset(Dataset, Protocol):
    """A data set that can be evaluated and converted: it knows the ids of its format and the fate of every box."""

    @property
    def image_ids(self) -> tuple[int, ...]:
        """The integer id of each image."""

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The category number of each class, in label order."""

    @property
    def problems(self) -> "tuple[Problem, ...]":
        """What was wrong with the set as a whole; problems of single boxes come with `reading`."""

    def reading(self, index: int) -> "Reading":
        """Every annotation of the image at `index`, as its file has it."""

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of the image at `index`."""


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images without annotations."""

    images: tuple[Path, ...]
    name: str = "folder"
    names: tuple[str, ...] = ()

    def annotations(self, index: int) -> Annotations:
        """Refuse: a plain folder has none."""
        raise InputError(
            f"{self.images[index].parent}: a plain folder has no annotations; name the data set, e.g. visdrone:DIR"
        )


def open_dataset(spec: str) -> Dataset:
    """Open one of SPECS or a plain folder of images."""
    if _kind(spec) is None and Path(spec).is_dir():
        return ImageFolder(images_in(Path(spec)))
    return open_annotated(spec)


def open_annotated(spec: str) -> AnnotatedDataset:
    """Open one of SPECS."""
    from vgtok.data.coco import open_aitodv2, open_coco
    from vgtok.data.visdrone import open_visdrone
    from vgtok.data.yolo import open_yolo

    kind = _kind(spec)
    rest = spec.partition(":")[2]
    place, _, second = rest.partition(":")
    if kind == "visdrone":
        return open_visdrone(Path(rest))
    if kind == "aitodv2":
        return open_aitodv2(Path(place), second or "val")
    if kind == "coco" and second:
        return open_coco(Path(place), Path(second))
    if kind == "yolo":
        return open_yolo(Path(place), second or "val")
    if kind is None and Path(spec).is_dir():
        raise InputError(f"data: '{spec}' is a plain folder without annotations; name it as {', '.join(SPECS)}")
    raise InputError(f"data: '{spec}' is neither a folder nor one of {', '.join(SPECS)}")


def _kind(spec: str) -> str | None:
    """The part before the colon, where it is the name of a format."""
    kind, colon, place = spec.partition(":")
    return kind if colon and place and any(known.startswith(f"{kind}:") for known in SPECS) else None


def images_in(folder: Path) -> tuple[Path, ...]:
    """Image files directly inside a folder, sorted by name; refused if there are none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    try:
        images = tuple(sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror or error})") from None
    if not images:
        raise InputError(f"{folder}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return images
