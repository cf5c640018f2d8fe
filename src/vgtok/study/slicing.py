"""A study of our own: the same weights on whole images, and on overlapping tiles with supervision's slicer.

Tiles are cut from the canvas, so that objects keep their size, or from the image itself, each tile then enlarged to the
model's canvas, as users of the slicer do.
"""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vgtok.detect.config import Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections
from vgtok.evaluate.evaluation import find_mistakes
from vgtok.study.accuracy import Measured, Trial, open_trial, verdict
from vgtok.study.cells import Found, Reader, found
from vgtok.study.paper import DENSE, GATED
from vgtok.study.result import DETECTS, Bars, Inputs, Result, Row, Study, bar_plot
from vgtok.tokenize.canvas import CanvasSize, fit_canvas, fitted_size
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    import supervision

TILE, OVERLAP = 640, 128
_WITHIN = 0.5
"""Share of the smaller box that another of its class must cover to count as the same object."""


@dataclass(frozen=True)
class Slices:
    """Read an image with all tokens in tiles of `tile` px that overlap, cut `of` the canvas or of the photo."""

    of: Literal["canvas", "photo"]
    canvas: CanvasSize
    tile: int = TILE
    overlap: int = OVERLAP

    def __call__(self, detector: Detector, pixels: Pixels, most: int, head: Head) -> Found:
        """Return the best `most` detections of the slicer; `retained` counts the tokens of all tiles."""
        try:
            import supervision
        except ImportError:
            raise InputError("slicing: needs supervision; pip install 'vgtok[study]'") from None
        reader = Tokenizer(budget=1.0, rank=0.0, canvas="native" if self.of == "canvas" else self.canvas)
        tokens = 0

        def callback(tile: Any) -> "supervision.Detections":
            nonlocal tokens
            result = detector(tile, tokenizer=reader, max_detections=most, score_threshold=0.0, head=head)
            tokens += len(result.tokens)
            detections: supervision.Detections = result.to_supervision()
            return detections

        canvas = fit_canvas(pixels, self.canvas)
        slicer = supervision.InferenceSlicer(callback, slice_wh=self.tile, overlap_wh=self.overlap)
        started = time.perf_counter()
        merged = slicer(np.ascontiguousarray(canvas.image if self.of == "canvas" else pixels))
        taken = 1000 * (time.perf_counter() - started)
        if not len(merged):
            empty = np.zeros(0)
            return found(np.zeros((0, 4)), empty, empty, tokens / canvas.extent.dense, taken)
        assert merged.confidence is not None
        assert merged.class_id is not None
        best = np.argsort(-merged.confidence, kind="stable")[:most]
        boxes = merged.xyxy[best]
        placed = canvas.to_source(boxes) if self.of == "canvas" else boxes
        labels = merged.class_id[best]
        return found(placed, merged.confidence[best], labels, tokens / canvas.extent.dense, taken)

    def seams(self, height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return where tiles overlap in an image of that size: (A, 2) ranges of x and (B, 2) of y, in image pixels."""
        size = fitted_size(height, width, self.canvas) if self.of == "canvas" else (height, width)
        across = _overlaps(size[1], self.tile, self.overlap) * width / size[1]
        return across, _overlaps(size[0], self.tile, self.overlap) * height / size[0]


def slicing(inputs: Inputs) -> Result:
    """Measure whole images with all tokens and at 40%, then both kinds of tiles."""
    trial = open_trial(inputs)
    canvas, photo = Slices("canvas", trial.canvas), Slices("photo", trial.canvas)
    readers: dict[str, Reader] = {
        "whole frame, all tokens": trial.tokenizer(DENSE),
        "whole frame, 40%": trial.tokenizer(GATED, 0.40),
        f"tiles of {TILE} px of the canvas": canvas,
        f"tiles of {TILE} px of the photo, enlarged": photo,
    }
    cells = trial.measure(readers, "slicing")
    dense_name = next(iter(cells))
    dense = cells[dense_name]
    slices = {name: reader for name, reader in readers.items() if isinstance(reader, Slices)}
    rows = [_row(trial, n, cell, (dense_name, dense), slices.get(n, canvas)) for n, cell in cells.items()]
    notes = [
        f"slicer: supervision's InferenceSlicer with its own suppression, {OVERLAP} px of overlap, every tile with all "
        "tokens; tokens and ms are sums over the tiles of an image; ms: encoder and head, one thread per process if "
        "several run, comparable only within one run",
        "duplicates: detections at the score of the row's best F1 whose box, or the better one over it, is covered to "
        f"{_WITHIN:.0%} by one of the same class; at seams: those that touch an overlap of tiles. Whole images are "
        "counted at the same places, as crowds have duplicates there too",
        *(
            f"{name} over whole images with all tokens: AP {verdict(*cell.minus(dense, 'AP'))}, "
            f"{cell.ms / dense.ms:.2f} of its time"
            for name, cell in list(cells.items())[1:]
        ),
    ]
    names = [row["frames_as"].replace(", ", ",\n").replace(" px of", " px\nof") for row in rows]
    points = {metric: [row[metric] or 0.0 for row in rows] for metric in ("AP", trial.small)}
    seconds = Bars({"time": [row["ms"] / 1000 for row in rows]}, {"xlabel": "seconds per image"})
    return trial.result(rows, notes, bar_plot(names, Bars(points, {"xlabel": "points"}), seconds))


def _row(trial: Trial, name: str, cell: Measured, dense: tuple[str, Measured], slices: Slices) -> Row:
    duplicates, at_seams = _duplicates(trial, cell, slices)
    row = cell.row({"frames_as": name, "tokens": cell.retained}, ("AP", "AP50", trial.small), {})
    times = {"ms": cell.ms, "of_dense_ms": cell.ms / dense[1].ms}
    return {**row, **cell.versus(*dense), **times, "duplicates": duplicates, "at_seams": at_seams}


def _duplicates(trial: Trial, cell: Measured, slices: Slices) -> tuple[float, float]:
    """Return duplicates per image, all and at seams, among the detections at the best F1 of the row."""
    kept = cell.scored.detections
    threshold = find_mistakes(cell.scored, trial.protocol.max_detections).threshold
    shown = kept.take(kept.scores >= threshold)
    total = seams = 0
    for index in range(len(trial.dataset.images)):
        own = shown.take(shown.image == index)
        width, height = trial.dataset.size(index)
        doubled = duplicated(own)
        total += int(doubled.sum())
        seams += int((doubled & touching(own, *slices.seams(height, width))).sum())
    return total / len(trial.dataset.images), seams / len(trial.dataset.images)


def duplicated(detections: Detections) -> NDArray[np.bool_]:
    """Return which (N,) detections of one image repeat an object of a better one of their class."""
    order = np.argsort(-detections.scores, kind="stable")
    boxes, labels = detections.boxes[order], detections.labels[order]
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum((boxes[:, :2] + boxes[:, 2:])[:, None], (boxes[:, :2] + boxes[:, 2:])[None])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(boxes[:, 2:], axis=1)
    covered = shared >= _WITHIN * np.maximum(np.minimum(areas[:, None], areas[None]), 1e-9)
    again = (covered & (labels[:, None] == labels[None]) & np.tri(len(order), k=-1, dtype=np.bool_)).any(axis=1)
    result = np.zeros(len(order), dtype=np.bool_)
    result[order] = again
    return result


def touching(detections: Detections, across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which (N,) detections reach into any of the (A, 2) ranges of x or (B, 2) ranges of y."""
    x0, y0 = detections.boxes[:, 0, None], detections.boxes[:, 1, None]
    x1, y1 = x0 + detections.boxes[:, 2, None], y0 + detections.boxes[:, 3, None]
    sideways = ((x0 < across[:, 1]) & (x1 > across[:, 0])).any(axis=1)
    return np.asarray(sideways | ((y0 < down[:, 1]) & (y1 > down[:, 0])).any(axis=1))


def _overlaps(length: int, tile: int, overlap: int) -> NDArray[np.float64]:
    """Return the (K, 2) ranges two tiles share along one side; the last tile ends with the image."""
    if length <= tile:
        return np.zeros((0, 2))
    starts = [*range(0, length - tile, tile - overlap), length - tile]
    return np.array([(after, before + tile) for before, after in pairwise(starts)], dtype=float)


STUDIES = (Study("slicing", "Whole frames against slicing, the same weights", slicing, takes=DETECTS, frames=100),)
