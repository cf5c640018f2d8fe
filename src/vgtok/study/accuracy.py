"""What the accuracy studies share: a model on the images of a data set, its cells scored by the data set's protocol.

Tokenizers enter, metrics leave. Budgets are exact: every image of one size gets the same count under every tokenizer.
Differences come with 95% intervals over paired resamples of the images.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from vgtok.evaluate.classes import label_map
from vgtok.evaluate.detections import GroundTruth, gather_detections, ground_truth, top_scoring
from vgtok.evaluate.evaluation import Evaluation, Scored, evaluate_scored
from vgtok.evaluate.protocols import ScoringRules, protocol_for, without_ignored
from vgtok.evaluate.resampling import draws, interval, resampled_metrics
from vgtok.study.cells import CellStore, Found, Reader, fingerprint, run_cells
from vgtok.study.paper import DENSE, SINGLE_PASS
from vgtok.study.result import CANVASES, Draw, Inputs, Read, Result, Row, paired
from vgtok.study.tokenizers import SETTINGS
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.tokenizer import Tokenizer

RESAMPLES = 300

Key = TypeVar("Key")

Difference = tuple[float | None, float | None, float | None]
"""A difference of two cells and the ends of its interval; None if one of them has no such metric."""


@dataclass(frozen=True)
class Measured:
    """One cell over all images: its evaluation, resampled metrics (R,), mean share of tokens and ms per image."""

    evaluation: Evaluation
    scored: Scored
    samples: Mapping[str, NDArray[np.float64]]
    retained: float
    ms: float

    def __getitem__(self, metric: str) -> float | None:
        return self.evaluation.metrics[metric]

    def row(self, about: Row, metrics: Iterable[str], printed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns `about` and the metrics, `retained` among them, beside those the paper prints."""
        values = {name: self.retained if name == "retained" else self[name] for name in metrics}
        return {**about, **paired(values, printed)}

    def minus(self, other: "Measured", metric: str) -> Difference:
        """Return the difference of a metric to another cell and its paired interval."""
        own, its = self[metric], other[metric]
        if own is None or its is None:
            return None, None, None
        return own - its, *interval(self.samples[metric] - other.samples[metric])

    def versus(self, name: str, other: "Measured", metric: str = "AP") -> dict[str, Any]:
        """Return the columns of a comparison: the other cell, the difference of a metric to it and its interval."""
        difference, low, high = self.minus(other, metric)
        return {"versus": name, "difference": difference, "low": low, "high": high}


@dataclass(frozen=True)
class Trial:
    """One model on the images of a study."""

    inputs: Inputs
    model: str
    detector: Detector
    dataset: AnnotatedDataset
    other_head: Head | None = None
    """A head whose detections are computed and stored beside, for another trial."""

    @property
    def title(self) -> str:
        """The name of the model in results: of a folder or file the last part of its path."""
        return Path(self.model).name if Path(self.model).exists() else self.model

    @cached_property
    def protocol(self) -> ScoringRules:
        """The protocol of the data set."""
        return protocol_for(None, self.dataset.name, None)

    @property
    def head(self) -> Head:
        """The head that predicts, by default the model's own."""
        asked = self.inputs.head
        return self.detector.head if asked is None or asked == "both" else asked

    @property
    def small(self) -> str:
        """The AP of the smallest objects: APS, on AI-TOD-v2 APvt."""
        return next(iter(self.protocol.bands))

    @property
    def canvas(self) -> CanvasSize:
        """The canvas the paper uses for the data set, else the model's own."""
        return CANVASES.get(self.dataset.name, self.detector.canvas)

    @cached_property
    def truth(self) -> GroundTruth:
        """The boxes and ignored regions of the images."""
        return ground_truth(self.dataset, self.protocol.region_roles)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The resamples all cells share, (R, images)."""
        return draws(len(self.dataset.images), RESAMPLES)

    def tokenizer(self, name: str, budget: float = 1.0, **changes: Any) -> Tokenizer:
        """Return the named tokenizer at an exact budget; at 100% all of them are the dense grid, and one cell."""
        chosen = SETTINGS[DENSE if budget == 1.0 else name]
        return Tokenizer(budget=budget, **{"canvas": self.canvas, **chosen, **changes})

    def single_pass(self, percentile: float, **changes: Any) -> Tokenizer:
        """Return Single-pass at a percentile p, where it keeps 1 - 0.0075 p of the tokens of any image."""
        return Tokenizer(percentile=percentile, **{"canvas": self.canvas, **SETTINGS[SINGLE_PASS], **changes})

    def measure(self, readers: Mapping[Key, Reader], label: str) -> dict[Key, Measured]:
        """Run or load every cell and score it."""
        store = CellStore(self.inputs.out, fingerprint(self.detector), self.head, self.protocol.max_detections)
        found = run_cells(
            self.model,
            self.detector,
            store,
            list(readers.values()),
            self.dataset.images,
            workers=self.inputs.workers,
            mapper=self.inputs.mapper,
            label=label,
            other_head=self.other_head,
        )
        scored = {reader: self.score(cell) for reader, cell in found.items()}
        return {key: scored[reader] for key, reader in readers.items()}

    def score(self, found: list[Found]) -> Measured:
        """Score the detections of one cell, one entry per image."""
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
        """Return the notes below every accuracy table."""
        parameters = sum(p.numel() for p in self.detector.model.parameters()) / 1e6
        total = len(self.inputs.annotated.images)
        canvas = self.canvas if isinstance(self.canvas, str) else "x".join(map(str, self.canvas))
        return [
            f"measured: {self.title}, {parameters:.1f}M parameters, {self._head_and_precision()}, canvas {canvas}, "
            f"{_frames(len(self.dataset.images), total)}, protocol {self.protocol.name}, "
            f"at most {self.protocol.max_detections} detections",
            "the paper's figures are of another model and training (Co-DETR with EVA-02 ViT-L): compare orderings and "
            "differences, not absolute values",
            f"low and high: 95% interval over {RESAMPLES} paired resamples of the images; budgets are exact in every "
            "image, the paper matches the mean over its split",
        ]

    def _head_and_precision(self) -> str:
        precision = self.detector.precision
        return f"{self.head} head" if precision == "float32" else f"{self.head} head, {precision}"

    @property
    def read(self) -> Read:
        """The data the study read."""
        return Read(self.dataset.name, len(self.dataset.images))

    def also(self) -> dict[str, Any]:
        """Return fields of the JSON: which model and which images."""
        return {
            "model": self.title,
            "head": self.head,
            "frames": [path.name for path in self.dataset.images],
            "protocol": self.protocol.name,
            "max_detections": self.protocol.max_detections,
        }

    def result(self, rows: Sequence[Row], notes: Iterable[str], plot: Draw, **more: Any) -> Result:
        """Return the result of an accuracy study; `also` in `more` adds to the fields of the JSON."""
        also = self.also() | more.pop("also", {})
        return Result(rows, [*self.notes(), *notes], plot=plot, also=also, read=self.read, **more)


def open_trials(inputs: Inputs, model: str | None = None) -> list[Trial]:
    """Return the trial of each head that was asked for, the model's own first; both share what they compute."""
    if inputs.head != "both":
        return [open_trial(inputs, model)]
    own = open_trial(replace(inputs, head=None), model)
    others = [head for head in own.detector.heads if head != own.head]
    if not others:
        raise InputError(f"--head: '{own.title}' has the head {own.head} only")
    return [replace(own, other_head=others[0]), replace(own, inputs=replace(inputs, head=others[0]))]


def open_trial(inputs: Inputs, model: str | None = None) -> Trial:
    """Load the model, by default the one of the study, and choose the images."""
    if inputs.head == "both":
        raise InputError("--head: this study runs one head; only ladder and dense-epochs run both")
    whole = cast(AnnotatedDataset, inputs.annotated)
    name = inputs.model if model is None else model
    detector = load(name, device=inputs.device, dtype=inputs.dtype)
    if inputs.head == "atss" and "atss" not in detector.heads:
        raise InputError(f"--head: '{name}' was saved without its ATSS head; use --head query")
    if (label_map(detector.names, whole.names) < 0).all():
        raise InputError(f"--model: '{name}' knows none of the classes of {whole.name}")
    return Trial(inputs, name, detector, whole if inputs.limit is None else evenly_spaced(whole, inputs.limit))


def share_of(one: Measured, other: Measured, metric: str = "AP") -> str:
    """Return the share of the AP of `other` that `one` keeps, with its interval, as text."""
    own, its = one[metric], other[metric]
    if own is None or not its:
        return f"no {metric} to compare"
    some = other.samples[metric] > 0
    low, high = interval(one.samples[metric][some] / other.samples[metric][some])
    return f"{own / its:.1%} of it ({low:.1%} to {high:.1%})"


def signed(value: float | None) -> str:
    """Return a difference with its sign as text."""
    return "-" if value is None else f"{value:+.2f}"


def verdict(difference: float | None, low: float | None, high: float | None) -> str:
    """Return a difference, its interval and whether it is significant, as text."""
    if difference is None or low is None or high is None:
        return "cannot be compared"
    significant = "significant" if low > 0 or high < 0 else "not significant"
    return f"{difference:+.2f} [{low:+.2f}, {high:+.2f}], {significant}"


def _frames(count: int, total: int) -> str:
    if count == total:
        return f"all {total} images"
    return f"{count} of {total} images, evenly spread in sorted order from the first"
