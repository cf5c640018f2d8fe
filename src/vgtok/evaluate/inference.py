"""Run a detector over a data set and collect its detections."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, FoundBoxes, gather_detections
from vgtok.parallel import map_with_progress
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from vgtok.detect.config import Head
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


@dataclass(frozen=True)
class Run:
    """The detections of a data set, the mean share of tokens `retained`, and the mean ms per image.

    `unused_classes` are classes of the model that the data lacks, `missing_classes` classes of the data that the model
    lacks; `missing_images` is the number of image files that do not exist.
    """

    detections: Detections
    retained: float
    ms: float
    unused_classes: tuple[str, ...]
    missing_classes: tuple[str, ...]
    missing_images: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the detections, for JSON."""
        return {key: value for key, value in vars(self).items() if key != "detections"}


def run_detector(
    detector: "Detector",
    dataset: AnnotatedDataset,
    tokenizer: Tokenizer,
    max_detections: int,
    head: "Head | None" = None,
    progress: bool = False,
) -> Run:
    """Run a detector with a tokenizer over every image of a data set, one at a time; `progress` shows a bar."""
    labels = label_map(detector.names, dataset.names)
    if (labels < 0).all():
        raise InputError(
            f"model: none of its classes ({', '.join(detector.names[:5])}, ...) is one of {dataset.name}'s "
            f"({', '.join(dataset.names[:5])}, ...)"
        )

    def detect(index: int) -> "Result | None":
        # A missing file is a problem of the data set, which its reader has already reported.
        path = dataset.images[index]
        return detector(path, tokenizer=tokenizer, max_detections=max_detections, head=head) if path.is_file() else None

    found: list[FoundBoxes] = []
    retained, times, missing = [], [], 0
    indices = range(len(dataset.images))
    results = map_with_progress(detect, indices, workers=1, label="detecting") if progress else map(detect, indices)
    for result in results:
        if result is None:
            missing += 1
            found.append((np.zeros((0, 4)), np.zeros(0), np.zeros(0, dtype=np.int64)))
            continue
        found.append((result.boxes, result.scores, result.labels))
        retained.append(result.tokens.retained)
        times.append(sum(vars(result.timings).values()))
    return Run(
        gather_detections(found, labels),
        float(np.mean(retained)) if retained else 0.0,
        float(np.mean(times)) if times else 0.0,
        tuple(name for name, label in zip(detector.names, labels, strict=True) if label < 0),
        tuple(name for label, name in enumerate(dataset.names) if label not in labels),
        missing,
    )


def label_map(model_names: tuple[str, ...], data_names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return (K,), for each class of a model, the label of the data's class of that name, or -1."""
    known = {_plain(name): label for label, name in enumerate(data_names)}
    return np.array([known.get(_plain(name), -1) for name in model_names], dtype=np.int64)


def _plain(name: str) -> str:
    """Return a class name without case, hyphens and underscores, in which spellings differ."""
    return name.lower().replace("-", " ").replace("_", " ").strip()
