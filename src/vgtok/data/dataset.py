"""Annotated sets of images: one interface over all formats, and the specs by which the command line opens them.

`visdrone:DIR`, `aitodv2:DIR`, `coco:JSON:IMAGES` and `yolo:YAML` open a data set in its own layout; a plain folder is
a set without annotations. AI-TOD-v2 and YOLO open their val split by default, another with e.g. `aitodv2:DIR:test`.
Every reader turns a line or json object into a `Row` and passes it through `check_row`, so that all formats treat boxes
without area or outside their image alike: skipped or kept, but always with a `Problem` that names the place.
"""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.tokenize.canvas import header_size

SPECS = ("visdrone:DIR", "aitodv2:DIR", "coco:JSON:IMAGES", "yolo:YAML")

_HEIC_SUFFIXES = (".heic", ".heif", ".hif")

IMAGE_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".jp2", ".j2k", ".gif", ".avif"),
        *(".ppm", ".pgm", ".pnm"),
        *(_HEIC_SUFFIXES if find_spec("pillow_heif") else ()),
    }
)
"""Endings of the formats that `vgtok.tokenize.decode` reads here; HEIC with the extra [heif] alone."""

_NAMED_AT_ONCE = 3
"""Problems of one kind that a summary lists; further ones are only counted."""

_LARGEST = 1e9
"""Largest coordinate in pixels; a larger one is an error in the file."""


@dataclass(frozen=True)
class Annotations:
    """Ground truth of one image, in its own pixels.

    `boxes` is (N, 4) float64 x0 y0 x1 y1 of the scored objects, `labels` (N,) their index into the data set's names,
    `ignored` (M, 4) the regions no protocol scores.
    """

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    ignored: NDArray[np.float64]


class Role(StrEnum):
    """What an annotation means to a protocol."""

    OBJECT = "object"  # scored
    CROWD = "crowd"  # a group of one class, as COCO's iscrowd
    REGION = "region"  # an area without annotations
    OTHERS = "others"  # an object of none of the classes


@dataclass(frozen=True, slots=True)
class Row:
    """One annotation: `box` is x, y, width, height as in the file; `label` is -1 where there is no class.

    `extra` holds what only one format has (VisDrone's truncation and occlusion), so that a round trip can return it.
    """

    box: tuple[float, float, float, float]
    role: Role
    label: int
    area: float
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the data: its kind, including what was done about it, and where it is.

    `unreadable` marks a line or object that could not be parsed at all.
    """

    kind: str
    where: str
    unreadable: bool = False


@dataclass(frozen=True)
class ParsedAnnotations:
    """The usable annotations of one image in file order, and the problems found."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...] = ()


class Dataset(Protocol):
    """Images in sorted file order, each with its annotations."""

    @property
    def name(self) -> str:
        """Name of the set in reports, e.g. 'visdrone'."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order; empty where nothing is annotated."""

    @property
    def images(self) -> tuple[Path, ...]:
        """The image files."""

    def annotations(self, index: int) -> Annotations:
        """Return the ground truth of the image at `index`."""


class AnnotatedDataset(Dataset, Protocol):
    """A data set that can be evaluated and converted: it has the ids of its format and keeps every annotation."""

    @property
    def image_ids(self) -> tuple[int, ...]:
        """The integer id of each image."""

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The category number of each class, in label order."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the set as a whole; `parse` returns those of single boxes."""

    def parse(self, index: int) -> ParsedAnnotations:
        """Return every annotation of the image at `index`, as in its file."""

    def size(self, index: int) -> tuple[int, int]:
        """Return width and height of the image at `index`."""


class RowReader(ABC):
    """Base of the readers: a format yields its rows, this class checks them and builds the arrays."""

    def annotations(self, index: int) -> Annotations:
        """Return the ground truth of the image at `index`: objects as boxes, everything else as ignored."""
        return to_annotations(self.parse(index))

    def parse(self, index: int) -> ParsedAnnotations:
        """Return every annotation of the image at `index`, as in its file."""
        unreadable: list[Problem] = []
        size = self._listed_size(index)
        checked = check_rows(self._rows(index, size, unreadable), size)
        return ParsedAnnotations(checked.rows, (*unreadable, *checked.problems))

    @abstractmethod
    def size(self, index: int) -> tuple[int, int]:
        """Return width and height of the image at `index`."""

    @abstractmethod
    def _rows(self, index: int, size: tuple[int, int] | None, unreadable: list[Problem]) -> Iterator[tuple[Row, str]]:
        """Yield the rows of an image with their places; append lines that cannot be parsed to `unreadable`."""

    def _listed_size(self, index: int) -> tuple[int, int] | None:
        """Return the size boxes are checked against, or None where they are not."""
        return self.size(index)


class FileReader(RowReader):
    """Base of the readers of formats that list neither ids nor sizes of their images."""

    images: tuple[Path, ...]

    @property
    def image_ids(self) -> tuple[int, ...]:
        """File stems if all are numbers, else 1, 2, 3, ... in the order of the images."""
        stems = [path.stem for path in self.images]
        numbers = {int(stem) for stem in stems if stem.isascii() and stem.isdigit()}
        return tuple(map(int, stems)) if len(numbers) == len(stems) else tuple(range(1, len(stems) + 1))

    def size(self, index: int) -> tuple[int, int]:
        """Return width and height of the image at `index`."""
        return image_size(self.images[index])


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images without annotations."""

    images: tuple[Path, ...]
    name: str = "folder"
    names: tuple[str, ...] = ()

    def annotations(self, index: int) -> Annotations:
        """Raise `InputError`: a plain folder has no annotations."""
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
    """Return the part before the colon if it is the name of a format."""
    kind, colon, place = spec.partition(":")
    return kind if colon and place and any(known.startswith(f"{kind}:") for known in SPECS) else None


def images_in(folder: Path) -> tuple[Path, ...]:
    """Return the image files directly inside a folder, sorted by name; raise `InputError` if there are none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    try:
        images = tuple(sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror or error})") from None
    if not images:
        raise InputError(f"{folder}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return images


def check_row(row: Row, where: str, size: tuple[int, int] | None) -> tuple[Row | None, Problem | None]:
    """Check a box in an image of `size` (width, height; None if unknown): return the row or None, and the problem."""
    x, y, width, height = row.box
    # Also false for NaN, for which no comparison is true.
    if not all(abs(value) < _LARGEST for value in row.box):
        return None, Problem("box that is not a place in an image, skipped", where)
    if width <= 0 or height <= 0:
        return None, Problem("box without area, skipped", where)
    if size is None:
        return row, None
    if x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0:
        return None, Problem("box outside its image, skipped", where)
    # A tenth of a pixel: normalized coordinates of six decimals are off by that much.
    slack = 0.1
    if x < -slack or y < -slack or x + width - slack > size[0] or y + height - slack > size[1]:
        return row, Problem("box partly outside its image, kept as it is", where)
    return row, None


def check_rows(candidates: Iterable[tuple[Row, str]], size: tuple[int, int] | None) -> ParsedAnnotations:
    """Check every row of one image."""
    rows, problems = [], []
    for candidate, where in candidates:
        row, problem = check_row(candidate, where, size)
        if row is not None:
            rows.append(row)
        if problem is not None:
            problems.append(problem)
    return ParsedAnnotations(tuple(rows), tuple(problems))


def to_annotations(parsed: ParsedAnnotations) -> Annotations:
    """Return the arrays of one image.

    Arrays cannot carry problems: odd boxes become warnings, and unreadable lines raise `InputError`.
    """
    for problem in parsed.problems:
        if problem.unreadable:
            raise InputError(f"{problem.where}: {problem.kind.removesuffix(', skipped')}")
    for line in summarize(parsed.problems):
        warnings.warn(line, stacklevel=3)
    objects = [row for row in parsed.rows if row.role is Role.OBJECT]
    ignored = [row for row in parsed.rows if row.role is not Role.OBJECT]
    return Annotations(
        boxes=corners([row.box for row in objects]),
        labels=np.array([row.label for row in objects], dtype=np.int64),
        ignored=corners([row.box for row in ignored]),
    )


def corners(boxes: Sequence[tuple[float, float, float, float]]) -> NDArray[np.float64]:
    """Return (N, 4) x0 y0 x1 y1 of boxes given as x, y, width, height."""
    array = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    array[:, 2:] += array[:, :2]
    return array


def summarize(problems: Iterable[Problem]) -> list[str]:
    """Return one line per kind of problem: how many, and where the first ones are."""
    problems = list(problems)
    lines = []
    for kind, count in sorted(Counter(problem.kind for problem in problems).items()):
        places = [problem.where for problem in problems if problem.kind == kind][:_NAMED_AT_ONCE]
        more = f" and {count - len(places)} more" if count > len(places) else ""
        lines.append(f"{count} x {kind}: {'; '.join(places)}{more}")
    return lines


def image_size(path: Path) -> tuple[int, int]:
    """Return width and height from the header of an image file."""
    try:
        return header_size(path)
    except InputError as error:
        raise InputError(f"{error}; so its boxes cannot be checked") from None


def common_folder(images: Sequence[Path]) -> Path:
    """Return the folder that holds all images, directly or below."""
    parents = {path.parent for path in images}
    folder = min(parents, key=lambda parent: len(parent.parts))
    while not all(parent.is_relative_to(folder) for parent in parents):
        folder = folder.parent
    return folder
