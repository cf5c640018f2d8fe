"""Part of an annotated data set: the same interface over fewer images, for a first look, or over fewer classes."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vgtok.data.dataset import AnnotatedDataset, Annotations
from vgtok.data.rows import Problem, Reading


@dataclass(frozen=True)
class Subset:
    """The images at `chosen` of another data set, under the ids they have there."""

    whole: AnnotatedDataset
    chosen: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the whole set: it is scored by the same protocol."""
        return self.whole.name

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self.whole.names

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
        """The category number of each class."""
        return self.whole.category_ids

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with the whole set."""
        return self.whole.problems

    def annotations(self, index: int) -> Annotations:
        """Ground truth of the chosen image at `index`."""
        return self.whole.annotations(self.chosen[index])

    def reading(self, index: int) -> Reading:
        """Every annotation of the chosen image at `index`."""
        return self.whole.reading(self.chosen[index])

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of the chosen image at `index`."""
        return self.whole.size(self.chosen[index])


@dataclass(frozen=True)
class Classes:
    """The classes of another data set whose labels there are `chosen`, in that order; other objects are not in it."""

    whole: AnnotatedDataset
    chosen: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the whole set: it is scored by the same protocol."""
        return self.whole.name

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen classes."""
        return tuple(self.whole.names[label] for label in self.chosen)

    @property
    def images(self) -> tuple[Path, ...]:
        """All image files."""
        return self.whole.images

    @property
    def image_ids(self) -> tuple[int, ...]:
        """The id of every image."""
        return self.whole.image_ids

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The category number each chosen class has in the whole set."""
        return tuple(self.whole.category_ids[label] for label in self.chosen)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with the whole set."""
        return self.whole.problems

    def annotations(self, index: int) -> Annotations:
        """Ground truth of the chosen classes in the image at `index`."""
        found = self.whole.annotations(index)
        kept = np.isin(found.labels, self.chosen)
        labels = np.array([self.chosen.index(label) for label in found.labels[kept]], dtype=np.int64)
        return Annotations(found.boxes[kept], labels, found.ignored)

    def reading(self, index: int) -> Reading:
        """Annotations of the chosen classes, and those of no class, of the image at `index`."""
        found = self.whole.reading(index)
        labels = {-1: -1, **{label: place for place, label in enumerate(self.chosen)}}
        rows = tuple(replace(row, label=labels[row.label]) for row in found.rows if row.label in labels)
        return Reading(rows, found.problems)

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of the image at `index`."""
        return self.whole.size(index)


def of_classes(dataset: AnnotatedDataset, names: tuple[str, ...]) -> AnnotatedDataset:
    """The part of a data set that has classes of these names; the whole where it has no others."""
    chosen = tuple(label for label, name in enumerate(dataset.names) if name in names)
    return dataset if len(chosen) == len(dataset.names) else Classes(dataset, chosen)


def spread(dataset: AnnotatedDataset, count: int) -> AnnotatedDataset:
    """At most `count` images, evenly spread: neighbours in a data set often show the same scene."""
    total = len(dataset.images)
    if count >= total:
        return dataset
    return Subset(dataset, tuple(number * total // count for number in range(count)))
