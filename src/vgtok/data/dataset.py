"""One interface over every annotated set of images, and the names by which the command line opens them.

`visdrone:DIR` and `aitodv2:DIR` open a data set in its own layout; a plain folder is a set without annotations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

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
    """Open `visdrone:DIR`, `aitodv2:DIR` or a plain folder of images."""
    from vgtok.data.coco import open_aitodv2
    from vgtok.data.visdrone import open_visdrone

    openers: dict[str, Callable[[Path], Dataset]] = {"visdrone": open_visdrone, "aitodv2": open_aitodv2}
    kind, colon, place = spec.partition(":")
    if colon and kind in openers:
        return openers[kind](Path(place))
    if Path(spec).is_dir():
        return ImageFolder(images_in(Path(spec)))
    raise InputError(f"data: '{spec}' is neither a folder nor one of {', '.join(f'{kind}:DIR' for kind in openers)}")


def images_in(folder: Path) -> tuple[Path, ...]:
    """Image files directly inside a folder, sorted by name; refused if there are none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    images = tuple(sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES))
    if not images:
        raise InputError(f"{folder}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return images
