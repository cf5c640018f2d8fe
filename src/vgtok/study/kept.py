"""A study of our own: what a partition keeps of a frame, priced by a detector that never heard of tokens.

Every token's region is resampled to 16 x 16 px and back, as its patch is before the encoder sees it, and the frame put
together again is given to any detector. Frames of a model are cached on disk and survive a kill.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.subset import evenly_spaced
from vgtok.evaluate.classes import map_text, named_map
from vgtok.evaluate.detections import gather_detections, ground_truth, top_scoring
from vgtok.evaluate.evaluation import Scored, evaluate_scored
from vgtok.evaluate.protocols import protocol_for, without_ignored
from vgtok.evaluate.resampling import draws, resampled_metrics
from vgtok.parallel import map_with_progress
from vgtok.slicing.answers import Answer
from vgtok.study.accuracy import RESAMPLES, Measured, verdict
from vgtok.study.cells import code_digest, image_digest
from vgtok.study.looks import Reader, opened_reader, readers_of, store_answers, stored_answers
from vgtok.study.paper import COMPACT, DENSE, GATED, RANDOM, SINGLE_PASS, TOP_HAT
from vgtok.study.result import Bars, Inputs, Read, Result, Row, Study, bar_plot
from vgtok.study.tokenizers import SETTINGS, partitions
from vgtok.tokenize.canvas import CanvasSize, read_image
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

_BUDGETS = (0.40, 0.20)
_POINTS = [(DENSE, 1.0)] + [
    (name, budget)
    for budget in _BUDGETS
    for name in (COMPACT, GATED, TOP_HAT, SINGLE_PASS, RANDOM)
    # Single-pass cannot keep less than a quarter.
    if name != SINGLE_PASS or budget >= 0.25
]
_CODE = ("tokenize", "study/kept.py", "study/tokenizers.py")


def render_at_tokens(image: NDArray[np.uint8], tokens: Tokens) -> NDArray[np.uint8]:
    """Return an (H, W, 3) canvas image with every token's region resampled to 16 x 16 px and back."""
    height, width = image.shape[:2]
    result = image.copy()
    for size in sorted(set(tokens.sizes.tolist()) - {CELL}):
        rows, columns = -(-height // size), -(-width // size)
        padding = ((0, rows * size - height), (0, columns * size - width), (0, 0))
        padded = np.pad(image, padding, mode="edge").astype(np.float32)
        blocks = padded.reshape(rows, size, columns, size, 3)
        step = _there_and_back(size)
        coarse = np.einsum("ab,rbcdk,ed->racek", step, blocks, step, optimize=True)
        coarse = np.clip(np.rint(coarse.reshape(rows * size, columns * size, 3)), 0, 255).astype(np.uint8)
        covered = np.zeros((rows, columns), dtype=np.bool_)
        chosen = tokens.sizes == size
        covered[tokens.y[chosen] // size, tokens.x[chosen] // size] = True
        mask = np.repeat(np.repeat(covered, size, axis=0), size, axis=1)[:height, :width]
        result[mask] = coarse[:height, :width][mask]
    return result


@cache
def _there_and_back(size: int) -> NDArray[np.float32]:
    """Return the (size, size) matrix that averages `size` samples to 16 and interpolates them linearly back."""
    factor = size // CELL
    down = np.kron(np.eye(CELL), np.full((1, factor), 1 / factor))
    place = np.clip((np.arange(size) + 0.5) / factor - 0.5, 0, CELL - 1)
    low = np.minimum(place.astype(int), CELL - 2)
    up = np.zeros((size, CELL))
    up[np.arange(size), low], up[np.arange(size), low + 1] = 1 - (place - low), place - low
    return np.asarray(up @ down, dtype=np.float32)


def kept(inputs: Inputs) -> Result:
    """Measure each model on frames rendered at the tokens of every tokenizer, at 40 and 20%."""
    whole = cast(AnnotatedDataset, inputs.annotated)
    dataset = whole if inputs.limit is None else evenly_spaced(whole, inputs.limit)
    rows: list[Row] = []
    notes = [
        "every token's region is averaged to 16 x 16 px and interpolated back before the detector sees the frame; "
        "budgets are exact; the detectors read whole frames and know nothing of tokens",
        f"low and high: 95% interval over {RESAMPLES} paired resamples of the images",
    ]
    for model, reader, labels in readers_of(inputs, dataset):
        found = _read_frames(model, reader, dataset.images, inputs)
        cells = _measured(dataset, labels, found)
        name = Path(model).name
        rows += _rows(name, cells)
        notes.append(f"{name}, classes: {map_text(named_map(labels, reader.names, dataset.names))}")
        notes += [
            f"{name}, {COMPACT} over {GATED} at {budget:.0%}: AP "
            + verdict(*cells[COMPACT, budget].minus(cells[GATED, budget], "AP"))
            for budget in _BUDGETS
        ]
    shown = [row for row in rows if row["model"] == rows[0]["model"]]
    names = [f"{row['tokenizer']}, {row['budget']:.0%}" for row in shown]
    bars = Bars({metric: [row[metric] or 0.0 for row in shown] for metric in ("AP", "small")}, {"xlabel": "points"})
    return Result(
        rows,
        notes,
        plot=bar_plot(names, bars),
        also={"frames": [path.name for path in dataset.images]},
        read=Read(dataset.name, len(dataset.images)),
    )


def _rows(model: str, cells: dict[tuple[str, float], Measured]) -> list[Row]:
    rows: list[Row] = []
    for (tokenizer, budget), cell in cells.items():
        small = next(name for name in ("APS", "APvt") if name in cell.evaluation.metrics)
        about = {"model": model, "tokenizer": tokenizer, "budget": budget}
        values = {"AP": cell["AP"], "AP50": cell["AP50"], "small": cell[small]}
        rows.append({**about, **values, **cell.versus(DENSE, cells[DENSE, 1.0])})
    return rows


def _measured(
    dataset: AnnotatedDataset, labels: NDArray[np.int64], found: Sequence[Sequence[Answer]]
) -> dict[tuple[str, float], Measured]:
    """Score every point; `found` has one answer per point for each image."""
    protocol = protocol_for(None, dataset.name, None)
    truth = ground_truth(dataset, protocol.region_roles)
    counts = draws(len(dataset.images), RESAMPLES)
    cells = {}
    for number, point in enumerate(_POINTS):
        detections = gather_detections([(o.boxes, o.scores, o.labels) for o in (one[number] for one in found)], labels)
        judged, remaining = without_ignored(truth, detections, protocol.drops_boxes)
        best = top_scoring(remaining, protocol.max_detections)
        scored = Scored(judged, best, len(detections) - len(remaining))
        evaluation = evaluate_scored(dataset.name, scored, len(detections), protocol)
        cells[point] = Measured(evaluation, scored, resampled_metrics(scored, protocol, counts), point[1], 0.0)
    return cells


@dataclass(frozen=True)
class _Job:
    """One frame, for a process that opens the detector itself."""

    model: str
    identity: str
    canvas: CanvasSize
    folder: Path
    path: Path

    @property
    def place(self) -> Path:
        """The file of the frame's answers."""
        return self.folder / f"{image_digest(self.path)}.npz"


def _read_frames(model: str, reader: Reader, images: Sequence[Path], inputs: Inputs) -> list[list[Answer]]:
    """Return the answers of every image, one per point; read only the images that the cache lacks."""
    settings = json.dumps([reader.identity, code_digest(_CODE), str(inputs.canvas), _POINTS])
    folder = inputs.out / "kept" / hashlib.sha256(settings.encode()).hexdigest()[:16]
    jobs = [_Job(model, reader.identity, inputs.canvas, folder, path) for path in images]
    lacking = [job for job in jobs if stored_answers(job.place) is None]
    label = f"frames for {Path(model).name}"
    if inputs.workers > 1 and len(lacking) > 1:
        done = map_with_progress(_read_in_process, lacking, workers=inputs.workers, label=label)
    else:
        done = map_with_progress(lambda job: _read(job, reader), lacking, workers=1, label=label)
    for _ in done:
        pass
    return [cast(tuple[list[Answer], object], stored_answers(job.place))[0] for job in jobs]


def _read_in_process(job: _Job) -> None:
    _read(job, opened_reader(job.model, job.identity))


def _read(job: _Job, reader: Reader) -> None:
    tokenizers = [Tokenizer(budget=budget, canvas=job.canvas, **SETTINGS[name]) for name, budget in _POINTS]
    canvas = tokenizers[0].to_canvas(read_image(job.path))
    answers = []
    for tokens in partitions(canvas, tokenizers):
        answer = reader(render_at_tokens(canvas.image, tokens))
        answers.append(Answer(canvas.to_source(answer.boxes), answer.scores, answer.labels))
    store_answers(job.place, answers, {})


STUDIES = (
    Study("kept", "What a partition keeps, priced by any detector", kept, takes=("data", "model", "map", "limit")),
)
