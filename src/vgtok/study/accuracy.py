"""What the accuracy studies share: a model over the frames, its cells scored by the data set's protocol, and intervals.

Budgets are exact: every image of one size gets the same count under every tokenizer. A difference comes with the middle
95% of its values over paired resamples of the images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.subset import evenly_spaced
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector
from vgtok.detect.loading import load
from vgtok.errors import InputError
from vgtok.evaluate.detections import GroundTruth, gather_detections, ground_truth, top_scoring
from vgtok.evaluate.evaluation import Evaluation, Scored, evaluate_scored
from vgtok.evaluate.inference import label_map
from vgtok.evaluate.protocols import ScoringRules, protocol_for, without_ignored
from vgtok.evaluate.resampling import draws, interval, resampled_metrics
from vgtok.study.cells import CellStore, Found, Reader, fingerprint, run_cells
from vgtok.study.paper_accuracy import DENSE, FUSED, FUSED_GATED, GATED, SINGLE_PASS, TOP_HAT
from vgtok.study.random_score import RandomScore
from vgtok.study.result import CANVASES, Inputs, Read
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer

RESAMPLES = 300
RANDOM = "random"

Key = TypeVar("Key")


_SETTINGS: dict[str, dict[str, Any]] = {
    DENSE: {"rank": 0.0},
    SINGLE_PASS: {"rank": 0.0, "splitter": "single_pass"},
    TOP_HAT: {"rank": 0.0},
    GATED: {"rank": SHIPPED_RANK},
    FUSED: {"rank": 0.0, "scorer": "fused"},
    FUSED_GATED: {"rank": SHIPPED_RANK, "scorer": "fused"},
    RANDOM: {"rank": 0.0, "scorer": RandomScore()},
}


@dataclass(frozen=True)
class Measured:
    """One cell over all frames: its evaluation, resampled metrics (R,), mean share of tokens and ms an image."""

    evaluation: Evaluation
    scored: Scored
    samples: Mapping[str, NDArray[np.float64]]
    retained: float
    ms: float

    def __getitem__(self, metric: str) -> float | None:
        return self.evaluation.metrics[metric]

    def minus(self, other: "Measured", metric: str) -> tuple[float | None, float | None, float | None]:
        """The difference of a metric to another cell, and the ends of its paired interval."""
        own, its = self[metric], other[metric]
        if own is None or its is None:
            return None, None, None
        return own - its, *interval(self.samples[metric] - other.samples[metric])

    def versus(self, name: str, other: "Measured", metric: str = "AP") -> dict[str, Any]:
        """Columns of a row: the other cell's name, the difference of a metric to it and its interval."""
        difference, low, high = self.minus(other, metric)
        return {"versus": name, "difference": difference, "low": low, "high": high}


@dataclass(frozen=True)
class Trial:
    """One model on the frames of a study."""

    inputs: Inputs
    model: str
    detector: Detector
    dataset: AnnotatedDataset

    @property
    def title(self) -> str:
        """What the model is called in results: a folder or file by its own name, without the way to it."""
        return Path(self.model).name if Path(self.model).exists() else self.model

    @cached_property
    def protocol(self) -> ScoringRules:
        """The data set's own rules."""
        return protocol_for(None, self.dataset.name, None)

    @property
    def head(self) -> Head:
        """The head that predicts: the one asked for, or the model's own choice."""
        return self.inputs.head or self.detector.head

    @property
    def small(self) -> str:
        """The AP of the smallest objects: APS, on AI-TOD-v2 APvt."""
        return next(iter(self.protocol.bands))

    @property
    def canvas(self) -> CanvasSize:
        """The canvas the paper reads the data at where it says so, else the model's own."""
        return CANVASES.get(self.dataset.name, self.detector.canvas)

    @cached_property
    def truth(self) -> GroundTruth:
        """The frames' boxes and regions."""
        return ground_truth(self.dataset, self.protocol.region_roles)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The draws all cells share, (R, images)."""
        return draws(len(self.dataset.images), RESAMPLES)

    def tokenizer(self, name: str, budget: float = 1.0, **changes: Any) -> Tokenizer:
        """The tokenizer of that name at an exact budget; at 100% every one is the dense grid, and so one cell."""
        chosen = _SETTINGS[DENSE if budget == 1.0 else name]
        return Tokenizer(budget=budget, **{"canvas": self.canvas, **chosen, **changes})

    def single_pass(self, percentile: float, **changes: Any) -> Tokenizer:
        """Single-pass at one of the paper's thresholds, where it keeps 1 - 0.0075 p of the tokens of any image."""
        return Tokenizer(percentile=percentile, **{"canvas": self.canvas, **_SETTINGS[SINGLE_PASS], **changes})

    def measure(self, readers: Mapping[Key, Reader], label: str) -> dict[Key, Measured]:
        """Run or load every cell, then score it."""
        store = CellStore(self.inputs.out, fingerprint(self.detector), self.head, self.protocol.max_detections)
        found = run_cells(
            self.model,
            self.detector,
            store,
            list(readers.values()),
            self.dataset.images,
            workers=self.inputs.workers,
            label=label,
        )
        scored = {reader: self.score(cell) for reader, cell in found.items()}
        return {key: scored[reader] for key, reader in readers.items()}

    def score(self, found: list[Found]) -> Measured:
        """Score one cell, each image's findings in order."""
        labels = label_map(self.detector.names, self.dataset.names)
        detections = gather_detections([(one.boxes, one.scores, one.labels) for one in found], labels)
        truth, kept = without_ignored(self.truth, detections, self.protocol.drops_boxes)
        scored = Scored(truth, top_scoring(kept, self.protocol.max_detections), len(detections) - len(kept))
        return Measured(
            evaluate_scored(self.dataset.name, scored, len(detections), self.protocol),
            scored,
            resampled_metrics(scored, self.protocol, self.counts),
            float(np.mean([image.retained for image in found])),
            float(np.mean([image.ms for image in found])),
        )

    def notes(self) -> list[str]:
        """What a reader of any accuracy table should know."""
        parameters = sum(p.numel() for p in self.detector.model.parameters()) / 1e6
        total = len(self.inputs.annotated.images)
        canvas = self.canvas if isinstance(self.canvas, str) else "x".join(map(str, self.canvas))
        return [
            f"measured: {self.title}, {parameters:.1f}M parameters, {self.head} head, canvas {canvas}, "
            f"{_frames(len(self.dataset.images), total)}, protocol {self.protocol.name}, "
            f"at most {self.protocol.max_detections} detections",
            "the paper's figures are of another model and training (Co-DETR with EVA-02 ViT-L): compare orderings and "
            "differences, not heights",
            f"low and high: the middle 95% of {RESAMPLES} paired resamples of the images; budgets are exact in every "
            "image, the paper matches the mean over its split",
        ]

    @property
    def read(self) -> Read:
        """What the study measured on."""
        return Read(self.dataset.name, len(self.dataset.images))

    def also(self) -> dict[str, Any]:
        """Fields of the JSON: which model and which frames."""
        return {
            "model": self.title,
            "head": self.head,
            "frames": [path.name for path in self.dataset.images],
            "protocol": self.protocol.name,
            "max_detections": self.protocol.max_detections,
        }


def open_trial(inputs: Inputs, model: str | None = None) -> Trial:
    """Load the model and choose the frames; `model` is the study's one model unless given."""
    whole = cast(AnnotatedDataset, inputs.annotated)
    name = inputs.model if model is None else model
    detector = load(name)
    if inputs.head == "atss" and "atss" not in detector.model.config.auxiliary:
        raise InputError(f"--head: '{name}' was saved without its ATSS head; use --head query")
    if (label_map(detector.names, whole.names) < 0).all():
        raise InputError(f"--model: '{name}' knows none of the classes of {whole.name}")
    return Trial(inputs, name, detector, whole if inputs.limit is None else evenly_spaced(whole, inputs.limit))


def share_of(one: Measured, other: Measured, metric: str = "AP") -> str:
    """How much of another cell's AP one keeps, with its interval, as a sentence has it."""
    own, its = one[metric], other[metric]
    if own is None or not its:
        return f"no {metric} to compare"
    some = other.samples[metric] > 0
    low, high = interval(one.samples[metric][some] / other.samples[metric][some])
    return f"{own / its:.1%} of it ({low:.1%} to {high:.1%})"


def signed(value: float | None) -> str:
    """A difference with its sign, as a sentence has it."""
    return "-" if value is None else f"{value:+.2f}"


def verdict(difference: float | None, low: float | None, high: float | None) -> str:
    """A difference and what its interval says of its sign."""
    if difference is None or low is None or high is None:
        return "cannot be compared"
    sure = "above 0" if low > 0 else "below 0" if high < 0 else "not significantly different from 0"
    return f"{difference:+.2f} [{low:+.2f}, {high:+.2f}], {sure}"


def _frames(count: int, total: int) -> str:
    if count == total:
        return f"all {total} images"
    return f"{count} of {total} images, evenly spread in sorted order from the first"
