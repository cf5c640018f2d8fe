"""Parts of a data set: by image, by class, evenly spaced, or whole sequences held out for validation."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import numpy as np

from vgtok.data.dataset import AnnotatedDataset, Annotations, ParsedAnnotations, Problem

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Subset:
    """The images at `chosen` of another data set, under the ids they have there.

    Its classes are those with `labels` there, in that order; objects of other classes are left out. None keeps all.
    """

    whole: AnnotatedDataset
    chosen: tuple[int, ...]
    labels: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """Name of the whole set: the subset is scored by the same protocol."""
        return self.whole.name

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self._kept(self.whole.names)

    @property
    def images(self) -> tuple[Path, ...]:
        """The chosen image files."""
        return tuple(self.whole.images[index] for index in self.chosen)

    @property
    def image_ids(self) -> tuple[int, ...]:
        """The id each image has in the whole set."""
        return tuple(self.whole.image_ids[index] for index in self.chosen)

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The category number each class has in the whole set."""
        return self._kept(self.whole.category_ids)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the whole set."""
        return self.whole.problems

    def annotations(self, index: int) -> Annotations:
        """Return the ground truth of the chosen image at `index`."""
        found = self.whole.annotations(self.chosen[index])
        if self.labels is None:
            return found
        kept = np.isin(found.labels, self.labels)
        labels = np.array([self.labels.index(label) for label in found.labels[kept]], dtype=np.int64)
        return Annotations(found.boxes[kept], labels, found.ignored)

    def parse(self, index: int) -> ParsedAnnotations:
        """Return every annotation of the chosen image at `index` that has one of the classes, or none at all."""
        found = self.whole.parse(self.chosen[index])
        if self.labels is None:
            return found
        labels = {-1: -1, **{label: place for place, label in enumerate(self.labels)}}
        rows = tuple(replace(row, label=labels[row.label]) for row in found.rows if row.label in labels)
        return ParsedAnnotations(rows, found.problems)

    def size(self, index: int) -> tuple[int, int]:
        """Return width and height of the chosen image at `index`."""
        return self.whole.size(self.chosen[index])

    def _kept(self, by_label: tuple[_Value, ...]) -> tuple[_Value, ...]:
        return by_label if self.labels is None else tuple(by_label[label] for label in self.labels)


def of_classes(dataset: AnnotatedDataset, names: tuple[str, ...]) -> AnnotatedDataset:
    """Return the part of a data set with classes of these names; the whole set if it has no others."""
    chosen = tuple(label for label, name in enumerate(dataset.names) if name in names)
    if len(chosen) == len(dataset.names):
        return dataset
    return Subset(dataset, tuple(range(len(dataset.images))), chosen)


def evenly_spaced(dataset: AnnotatedDataset, count: int) -> AnnotatedDataset:
    """Return at most `count` evenly spaced images: neighbors in a data set often show the same scene."""
    total = len(dataset.images)
    if count >= total:
        return dataset
    return Subset(dataset, tuple(number * total // count for number in range(count)))


_FRAME_NUMBER = re.compile(r"[-_. ]*\d+$")


def sequence_of(image: Path) -> str:
    """Return what the images of a sequence share: folder and name up to the first underscore, or without number.

    >>> sequence_of(Path("images/0000002_00005_d_0000014.jpg")), sequence_of(Path("flight-0012.png"))
    ('images/0000002', 'flight')
    """
    name, underscore, _ = image.stem.partition("_")
    return (image.parent / (name if underscore else _FRAME_NUMBER.sub("", image.stem))).as_posix()


def kept_apart(images: Sequence[Path], count: int, labels: Sequence[Sequence[int]] | None = None) -> list[int]:
    """Return at least `count` of the images, in whole sequences; the same ones every time.

    Sequences longer than a quarter of `count` are taken last. With the `labels` in each image, classes come first: as
    long as it occurs in two sequences, one of them is taken.
    """
    members: dict[str, list[int]] = {}
    for index, image in enumerate(images):
        members.setdefault(sequence_of(image), []).append(index)
    # Hash the names, so that the order has nothing to do with them.
    order = sorted(members, key=lambda name: (max(len(members[name]), count // 4), crc32(name.encode())))
    if labels is not None:
        order = _classes_first(
            order, {name: {label for index in members[name] for label in labels[index]} for name in order}
        )
    apart: list[int] = []
    for name in order:
        if len(apart) >= count:
            break
        apart += members[name]
    return sorted(apart)


def _classes_first(order: Sequence[str], classes: Mapping[str, set[int]]) -> list[str]:
    """Return the sequences with, at the front, those that show every class that two of them show, rare ones first."""
    frequency = Counter(label for shown in classes.values() for label in shown)
    front: list[str] = []
    for label, _ in sorted(frequency.items(), key=lambda item: item[1]):
        if frequency[label] > 1 and not any(label in classes[name] for name in front):
            front.append(next(name for name in order if label in classes[name]))
    return [*front, *(name for name in order if name not in front)]
