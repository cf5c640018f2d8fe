"""Run a detector over a data set and collect its detections."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections
from vgtok.parallel import map_with_progress
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from vgtok.detect.config import Head
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


@dataclass(frozen=True)
class Run:
    """What a detector found, at which mean share of tokens, in how many ms an image.

    `unused_classes` are those of the model the data does not have, `missing_classes` those of the data the model does
    not know; `missing_images` could not be read because they are not there.
    """

    detections: Detections
    retained: float
    ms: float
    unused_classes: tuple[str, ...]
    missing_classes: tuple[str, ...]
    missing_images: int

    def to_dict(self) -> dict[str, Any]:
        """Everything but the detections, as JSON has it."""
        return {key: value for key, value in vars(self).items() if key != "detections"}


def run_detector(
    detector: "Detector",
    dataset: AnnotatedDataset,
    tokenizer: Tokenizer,
    max_detections: int,
    head: "Head | None" = None,
) -> Run:
    """Detect in every image of a data set as `tokenizer` reads it, one at a time, with a progress bar."""
    labels = label_map(detector.names, dataset.names)
    if (labels < 0).all():
        raise InputError(
            f"model: none of its classes ({', '.join(detector.names[:5])}, ...) is one of {dataset.name}'s "
            f"({', '.join(dataset.names[:5])}, ...)"
        )

    def detect(index: int) -> "Result | None":
        # A file that is not there is a problem of the data set, which its reader has already told.
        path = dataset.images[index]
        return detector(path, tokenizer=tokenizer, max_detections=max_detections, head=head) if path.is_file() else None

    rows, image, retained, times, missing = [], [], [], [], 0
    found = map_with_progress(detect, range(len(dataset.images)), workers=1, label="detecting")
    for index, result in enumerate(found):
        if result is None:
            missing += 1
            continue
        known = labels[result.labels] >= 0
        rows.append((result.boxes[known], result.scores[known], labels[result.labels[known]]))
        image.append(np.full(int(known.sum()), index, dtype=np.int64))
        retained.append(result.tokens.retained)
        times.append(sum(vars(result.timings).values()))
    return Run(
        _gathered(rows, image),
        float(np.mean(retained)) if retained else 0.0,
        float(np.mean(times)) if times else 0.0,
        tuple(name for name, label in zip(detector.names, labels, strict=True) if label < 0),
        tuple(name for label, name in enumerate(dataset.names) if label not in labels),
        missing,
    )


def label_map(model_names: tuple[str, ...], data_names: tuple[str, ...]) -> NDArray[np.int64]:
    """For each class of a model the label of the data's class of that name, -1 where there is none: (K,)."""
    known = {_plain(name): label for label, name in enumerate(data_names)}
    return np.array([known.get(_plain(name), -1) for name in model_names], dtype=np.int64)


def _plain(name: str) -> str:
    """A class name without what spellings differ in: case, hyphens, underscores."""
    return name.lower().replace("-", " ").replace("_", " ").strip()


def _gathered(
    rows: list[tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]]], image: list[NDArray[np.int64]]
) -> Detections:
    boxes = np.concatenate([np.zeros((0, 4)), *(row[0] for row in rows)])
    # Corners to x, y, width, height
    boxes[:, 2:] -= boxes[:, :2]
    return Detections(
        boxes=boxes,
        scores=np.concatenate([np.zeros(0), *(row[1] for row in rows)]).astype(np.float64),
        labels=np.concatenate([np.zeros(0, dtype=np.int64), *(row[2] for row in rows)]),
        image=np.concatenate([np.zeros(0, dtype=np.int64), *image]),
    )
