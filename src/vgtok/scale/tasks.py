"""What is done to every frame: settings travel to a worker, the function prepared there turns a frame into a row.

A task names the columns of its rows. It is prepared once per worker, so a model is loaded once.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE, DEFAULT_TOKENIZER
from vgtok.errors import InputError
from vgtok.scale.cluster import Worker
from vgtok.scale.frames import Frame
from vgtok.tokenize.calibrate import Sweep, sweep_counts
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result
    from vgtok.export.runtime import OnnxDetector

Row = dict[str, Any]
"""Values of one frame by column."""

Work = Callable[[Frame], Row]

Pixels = NDArray[np.uint8]

INT, REAL, TEXT = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
TEXTS = pyarrow.list_(TEXT)

DETECT_WORKER = Worker(memory=2 * 10**9)
"""The size of a worker that runs a model: the shipped one on the largest canvas of the paper, with room."""

FRAME_COLUMNS = (("index", INT), ("frame", TEXT), ("source", TEXT), ("error", TEXT))
"""Columns of every row: the number of the frame in the run, its name, its place, and why it has no result."""


class Task(Protocol):
    """What is done to every frame."""

    @property
    def columns(self) -> Sequence[tuple[str, Any]]:
        """Names and Arrow types of the columns after FRAME_COLUMNS."""

    @property
    def settings(self) -> dict[str, Any]:
        """What results depend on, as plain values."""

    def prepare(self, worker: Worker) -> Work:
        """Return the function from frames to rows; called once in each worker."""


TokenFiles = Callable[[Frame, Pixels, Tokens], list[str]]
"""Writes files for the tokens of a frame and returns their names."""

DetectionFiles = Callable[["Detector | OnnxDetector", Frame, Pixels, "Result"], list[str]]


@dataclass(frozen=True)
class TokenizeTask:
    """Partition every frame; `files` also writes files for it.

    A frame with a side of more than `longest` px is refused. `tokenizer` is the name of one of
    `vgtok.tokenize.PRESETS` [default: the model's].
    """

    tokenizer: Tokenizer
    files: TokenFiles | None = None
    longest: int | None = None

    @property
    def columns(self) -> Sequence[tuple[str, Any]]:
        """Counts, the sizes of canvas and source, and the tokens."""
        integers = ("tokens", "dense", "size_16", "size_32", "size_64", "height", "width")
        tokens = pyarrow.list_(pyarrow.int32())
        return (
            *((name, INT) for name in (*integers, "source_height", "source_width")),
            ("written", TEXTS),
            *((name, tokens) for name in ("x", "y", "size")),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The tokenizer's."""
        return asdict(self.tokenizer)

    def prepare(self, worker: Worker) -> Work:
        """Return the function from a frame to its tokens."""

        def work(frame: Frame) -> Row:
            pixels = _checked(frame.pixels(), self.longest)
            tokens = self.tokenizer(pixels)
            return {
                "tokens": len(tokens),
                "dense": tokens.dense,
                **{f"size_{size}": count for size, count in tokens.counts().items()},
                **{name: getattr(tokens, name) for name in ("height", "width", "source_height", "source_width")},
                "written": [] if self.files is None else self.files(frame, pixels, tokens),
                "x": tokens.x,
                "y": tokens.y,
                "size": tokens.sizes,
            }

        return work


def _checked(pixels: Pixels, longest: int | None) -> Pixels:
    """Refuse (H, W, 3) pixels that the local engine reads by windows, so that no result differs from its own."""
    if longest is not None and max(pixels.shape[:2]) > longest:
        raise InputError(f"has a side of more than {longest} px, which --engine local reads by windows; use that")
    return pixels


def tokens_of(row: Row) -> Tokens:
    """Return the tokens of a row that `TokenizeTask` made."""
    x, y, sizes = (np.asarray(row[name], dtype=np.int32) for name in ("x", "y", "size"))
    height, width, source_height, source_width = (
        int(row[name]) for name in ("height", "width", "source_height", "source_width")
    )
    return Tokens(x, y, sizes, height, width, source_height, source_width)


def _opened(model: str, worker: Worker, dtype: str, sparse_head: bool | None) -> "Detector | OnnxDetector":
    """Open a model of either kind, with as many threads as a worker has cores."""
    if model.lower().endswith(".onnx"):
        from vgtok.export.runtime import OnnxDetector

        return OnnxDetector(model, threads=worker.cpus)
    return _loaded(model, worker, dtype, sparse_head)


def _loaded(model: str, worker: Worker, dtype: str, sparse_head: bool | None) -> "Detector":
    """Load a model on the GPU of a worker that has one, else with as many threads as it has cores."""
    import torch

    from vgtok.detect.loading import load

    torch.set_num_threads(worker.cpus)
    detector = load(model, device="cuda" if worker.gpus else "cpu", dtype=dtype)
    if sparse_head is not None:
        detector.sparse_head = sparse_head
    return detector


@dataclass(frozen=True)
class DetectTask:
    """Detect in every frame with the model of a name; `files` also writes files for it.

    A frame with a side of more than `longest` px is refused. `tokenizer` is the name of one of
    `vgtok.tokenize.PRESETS` [default: the model's].
    """

    model: str
    budget: float | None = None
    score_threshold: float = DEFAULT_SCORE
    max_detections: int = 1000
    head: Literal["query", "atss"] | None = None
    dtype: str = "auto"
    sparse_head: bool | None = None
    files: DetectionFiles | None = None
    longest: int | None = None
    tokenizer: str | None = None

    @property
    def columns(self) -> Sequence[tuple[str, Any]]:
        """Tokens, the milliseconds of each stage, and the objects as in a COCO results file."""
        found = {"name": TEXT, "label": INT, "category_id": INT, "bbox": pyarrow.list_(REAL), "score": REAL}
        return (
            ("canvas", TEXT),
            ("tokens", INT),
            ("retained", REAL),
            ("ms", pyarrow.struct([(part, REAL) for part in ("tokenizer", "encoder", "head")])),
            ("written", TEXTS),
            ("objects", pyarrow.list_(pyarrow.struct(list(found.items())))),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the files; the tokenizer only if it is another than the one of earlier versions' shards."""
        usual = self.tokenizer in (None, DEFAULT_TOKENIZER)
        left_out = ("files", "longest", *(["tokenizer"] if usual else []))
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def prepare(self, worker: Worker) -> Work:
        """Load the model and return the function from a frame to its objects."""
        from vgtok.detect.result import record

        detector = _opened(self.model, worker, self.dtype, self.sparse_head)
        detector.tokenizer_name = self.tokenizer or detector.tokenizer_name

        def work(frame: Frame) -> Row:
            pixels = _checked(frame.pixels(), self.longest)
            result = detector(
                pixels,
                budget=self.budget,
                max_detections=self.max_detections,
                score_threshold=self.score_threshold,
                head=self.head,
            )
            row = record(frame.item, result)
            row["written"] = [] if self.files is None else self.files(detector, frame, pixels, result)
            return {name: row[name] for name, _ in self.columns}

        return work


@dataclass(frozen=True)
class ScoreTask:
    """Detect in every frame as evaluation does: every score, boxes unrounded."""

    model: str
    tokenizer: Tokenizer
    max_detections: int
    head: Literal["query", "atss"] | None
    dtype: str = "float32"
    sparse_head: bool | None = None

    @property
    def columns(self) -> Sequence[tuple[str, Any]]:
        """Boxes as a flat list of x0 y0 x1 y1, scores and labels; retained tokens and milliseconds."""
        reals = pyarrow.list_(REAL)
        lists = (("boxes", reals), ("scores", pyarrow.list_(pyarrow.float32())), ("labels", pyarrow.list_(INT)))
        return (*lists, ("retained", REAL), ("ms", REAL))

    @property
    def settings(self) -> dict[str, Any]:
        """The model, and how it reads."""
        return {**vars(self), "tokenizer": asdict(self.tokenizer)}

    def prepare(self, worker: Worker) -> Work:
        """Load the model and return the function from a frame to its detections."""
        detector = _loaded(self.model, worker, self.dtype, self.sparse_head)

        def work(frame: Frame) -> Row:
            settings: dict[str, Any] = {
                "max_detections": self.max_detections,
                "score_threshold": 0.0,
                "head": self.head,
            }
            result = detector(frame.pixels(), tokenizer=self.tokenizer, **settings)
            return {
                "boxes": result.boxes.ravel(),
                "scores": result.scores,
                "labels": result.labels,
                "retained": result.tokens.retained,
                "ms": sum(vars(result.timings).values()),
            }

        return work


@dataclass(frozen=True)
class SweepTask:
    """Count the tokens of every frame at the settings of a sweep, for a retention table."""

    sweep: Sweep

    @property
    def columns(self) -> Sequence[tuple[str, Any]]:
        """The dense grid, and the counts by scorer, rank and percentile as a flat list."""
        return (("dense", INT), ("tokens", pyarrow.list_(INT)))

    @property
    def settings(self) -> dict[str, Any]:
        """The sweep's."""
        return asdict(self.sweep)

    def prepare(self, worker: Worker) -> Work:
        """Return the function from a frame to its counts."""

        def work(frame: Frame) -> Row:
            dense, counts = sweep_counts(frame.pixels(), self.sweep)
            return {"dense": dense, "tokens": np.ravel(counts)}

        return work
