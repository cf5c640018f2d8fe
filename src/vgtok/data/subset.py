"""Part of an annotated data set, for a first look: the same interface over fewer images."""

from dataclasses import dataclass
from pathlib import Path

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


def spread(dataset: AnnotatedDataset, count: int) -> AnnotatedDataset:
    """At most `count` images, evenly spread: neighbours in a data set often show the same scene."""
    total = len(dataset.images)
    if count >= total:
        return dataset
    return Subset(dataset, tuple(number * total // count for number in range(count)))
