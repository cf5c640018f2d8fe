"""The alternative users have: the same weights on whole frames, and on overlapping tiles by supervision's slicer.

Tiles are cut from the frame on its canvas, so that objects keep their size, or from the photo, each tile then enlarged
to the model's canvas as the slicer's users have it.
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
from vgtok.overlap import corners, intersections
from vgtok.study.accuracy import Measured, Trial, open_trial, verdict
from vgtok.study.cells import Found, Reader
from vgtok.study.paper_accuracy import DENSE, GATED
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study
from vgtok.tokenize.canvas import CanvasSize, fit_canvas, fitted_size
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    import supervision
    from matplotlib.figure import Figure

TILE, OVERLAP = 640, 128
_WITHIN = 0.5
"""Share of the smaller box another of its class must cover for the two to show one object."""


@dataclass(frozen=True)
class Slices:
    """Reads a frame with all tokens in tiles of `tile` px with `overlap` px, cut `of` the canvas or of the photo."""

    of: Literal["canvas", "photo"]
    canvas: CanvasSize
    tile: int = TILE
    overlap: int = OVERLAP

    def __call__(self, detector: Detector, pixels: Pixels, most: int, head: Head) -> Found:
        """The slicer's detections, the best `most`; `retained` counts the tokens of all tiles."""
        try:
            import supervision
        except ImportError:
            raise InputError("slicing: needs supervision; pip install 'vgtok[study]'") from None
        reader = Tokenizer(budget=1.0, rank=0.0, canvas="native" if self.of == "canvas" else self.canvas)
        tokens = 0

        def callback(tile: Any) -> "supervision.Detections":
            nonlocal tokens
            result = detector(tile, tokenizer=reader, max_detections=most, head=head)
            tokens += len(result.tokens)
            found: supervision.Detections = result.to_supervision()
            return found

        canvas = fit_canvas(pixels, self.canvas)
        slicer = supervision.InferenceSlicer(callback, slice_wh=self.tile, overlap_wh=self.overlap)
        started = time.perf_counter()
        merged = slicer(np.ascontiguousarray(canvas.image if self.of == "canvas" else pixels))
        taken = 1000 * (time.perf_counter() - started)
        if not len(merged):
            empty = np.zeros(0)
            return Found(
                np.zeros((0, 4), np.float32),
                empty.astype(np.float32),
                empty.astype(np.int16),
                tokens / canvas.extent.dense,
                taken,
            )
        assert merged.confidence is not None
        assert merged.class_id is not None
        best = np.argsort(-merged.confidence, kind="stable")[:most]
        boxes = merged.xyxy[best]
        placed = canvas.to_source(boxes) if self.of == "canvas" else boxes
        return Found(
            placed.astype(np.float32),
            merged.confidence[best].astype(np.float32),
            merged.class_id[best].astype(np.int16),
            tokens / canvas.extent.dense,
            taken,
        )

    def seams(self, height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where tiles overlap in an image of that size: (A, 2) ranges of x and (B, 2) ranges of y, in its pixels."""
        size = fitted_size(height, width, self.canvas) if self.of == "canvas" else (height, width)
        across = _overlaps(size[1], self.tile, self.overlap) * width / size[1]
        return across, _overlaps(size[0], self.tile, self.overlap) * height / size[0]


def run(inputs: Inputs) -> Result:
    """Measure whole frames with all tokens and at 40%, then both kinds of tiles."""
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
    rows = [
        _row(trial, name, cell, (dense_name, dense), readers[name] if isinstance(readers[name], Slices) else canvas)
        for name, cell in cells.items()
    ]
    notes = [
        *trial.notes(),
        f"slicer: supervision's InferenceSlicer with its own suppression, {OVERLAP} px of overlap, every tile with all "
        "tokens; tokens and ms are those of all tiles of a frame; ms: encoder and head, one thread to a process where "
        "several run, to be compared where all rows are of one run",
        "duplicates: detections at the score of the row's best F1 whose box, or the better one over it, is covered to "
        f"{_WITHIN:.0%} by one of the same class; at seams: those that touch an overlap of tiles. Crowds have some in "
        "whole frames too, counted at the same places",
        *(
            f"{name} over whole frames with all tokens: AP {verdict(*cell.minus(dense, 'AP'))}, "
            f"{cell.ms / dense.ms:.2f} of its time"
            for name, cell in list(cells.items())[1:]
        ),
    ]
    return Result(rows, notes, plot=lambda figure: _plot(figure, rows, trial.small), also=trial.also(), read=trial.read)


def _row(trial: Trial, name: str, cell: Measured, dense: tuple[str, Measured], slices: Any) -> Row:
    duplicates, at_seams = _duplicates(trial, cell, slices)
    return {
        "frames_as": name,
        "tokens": cell.retained,
        "AP": cell["AP"],
        "AP50": cell["AP50"],
        trial.small: cell[trial.small],
        **cell.versus(*dense),
        "ms": cell.ms,
        "of_dense_ms": cell.ms / dense[1].ms,
        "duplicates": duplicates,
        "at_seams": at_seams,
    }


def _duplicates(trial: Trial, cell: Measured, slices: Slices) -> tuple[float, float]:
    """Duplicates a frame, all and at seams, among detections of the row's best F1."""
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
    """Which detections of one image show again what a better one of their class does: (N,)."""
    order = np.argsort(-detections.scores, kind="stable")
    boxes, labels = detections.boxes[order], detections.labels[order]
    shared = intersections(corners(boxes), corners(boxes))
    areas = np.prod(boxes[:, 2:], axis=1)
    covered = shared >= _WITHIN * np.maximum(np.minimum(areas[:, None], areas[None]), 1e-9)
    again = (covered & (labels[:, None] == labels[None]) & np.tri(len(order), k=-1, dtype=np.bool_)).any(axis=1)
    result = np.zeros(len(order), dtype=np.bool_)
    result[order] = again
    return result


def touching(detections: Detections, across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which (N,) detections reach into any of the (A, 2) ranges of x or (B, 2) ranges of y."""
    x0, y0 = detections.boxes[:, 0, None], detections.boxes[:, 1, None]
    x1, y1 = x0 + detections.boxes[:, 2, None], y0 + detections.boxes[:, 3, None]
    sideways = ((x0 < across[:, 1]) & (x1 > across[:, 0])).any(axis=1)
    return np.asarray(sideways | ((y0 < down[:, 1]) & (y1 > down[:, 0])).any(axis=1))


def _overlaps(length: int, tile: int, overlap: int) -> NDArray[np.float64]:
    """(K, 2) ranges two tiles share along one side: tiles at a stride, the last one flush with the end."""
    if length <= tile:
        return np.zeros((0, 2))
    starts = [*range(0, length - tile, tile - overlap), length - tile]
    return np.array([(after, before + tile) for before, after in pairwise(starts)], dtype=float)


def _plot(figure: "Figure", rows: list[Row], small: str) -> None:
    panels: Any = figure.subplots(1, 2, sharey=True)
    names = [row["frames_as"].replace(", ", ",\n").replace(" px of", " px\nof") for row in rows]
    places = np.arange(len(rows))
    for shift, colour, metric in ((-0.18, PALETTE[0], "AP"), (0.18, PALETTE[1], small)):
        panels[0].barh(places + shift, [row[metric] or 0.0 for row in rows], 0.34, color=colour, label=metric)
    panels[0].set(xlabel="points")
    panels[1].barh(places, [row["ms"] / 1000 for row in rows], 0.5, color=PALETTE[2])
    panels[1].set(xlabel="seconds a frame")
    panels[0].set_yticks(places, names, fontsize=8)
    panels[0].invert_yaxis()
    panels[0].legend(fontsize=8)


STUDY = Study("slicing", "Whole frames against slicing, the same weights", run, takes=DETECTS)
