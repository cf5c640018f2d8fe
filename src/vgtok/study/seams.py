"""A study of our own: frames read by overlapping windows against the same frames read whole, by the same weights.

Windows are cut from the canvas, so that objects keep their size, and both ways share one partition of it: what differs
is that a window shows the model less, and that the boxes of windows are merged.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgtok.detect.config import Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.evaluate.detections import Detections
from vgtok.evaluate.evaluation import Mistakes, find_mistakes
from vgtok.overlap import iou_xywh
from vgtok.slicing.windows import SHARED, Windows
from vgtok.study.accuracy import Measured, Trial, open_trial, verdict
from vgtok.study.cells import Found, Reader, found
from vgtok.study.paper import GATED
from vgtok.study.result import DETECTS, Bars, Inputs, Result, Row, Study, bar_plot
from vgtok.tokenize.canvas import CanvasSize, fit_canvas, fitted_size

BUDGET = 0.40
SIZES = (Windows(1024, 640), Windows(1024, 640, overlap=256))
"""Windows small enough to give a canvas of 2048 x 1152 px many seams."""

_SAME = 0.5
_INSIDE = 0.8
"""Share of a detection's area inside an object that makes it a part of it: what a window sees of one at its border."""


@dataclass(frozen=True)
class ByWindows:
    """Fit an image to the canvas and read that by windows, at one budget over all of it."""

    windows: Windows
    canvas: CanvasSize
    budget: float = BUDGET

    def __call__(self, detector: Detector, pixels: Pixels, most: int, head: Head) -> Found:
        """Return the best `most` detections of all windows."""
        canvas = fit_canvas(pixels, self.canvas)
        image = np.ascontiguousarray(canvas.image)
        started = time.perf_counter()
        result = detector(
            image, budget=self.budget, canvas=self.windows, max_detections=most, score_threshold=0.0, head=head
        )
        taken = 1000 * (time.perf_counter() - started) - result.timings.tokenizer
        boxes = canvas.to_source(result.boxes[:most])
        return found(boxes, result.scores[:most], result.labels[:most], result.tokens.retained, taken)


def seams(inputs: Inputs) -> Result:
    """Measure frames at 40% read whole, then by windows of several sizes and overlaps."""
    trial = open_trial(inputs)
    readers: dict[str, Reader] = {
        "whole": trial.tokenizer(GATED, BUDGET),
        **{
            f"windows of {size.width} x {size.height}, {size.overlap} px shared": ByWindows(size, trial.canvas)
            for size in SIZES
        },
    }
    cells = trial.measure(readers, "seams")
    whole = cells["whole"]
    rows = [
        _row(trial, name, cell, whole, reader.windows if isinstance(reader, ByWindows) else None)
        for (name, cell), reader in zip(cells.items(), readers.values(), strict=True)
    ]
    notes = [
        f"every reading at {BUDGET:.0%} of the tokens of a frame, by one partition; ms: encoder, head and merge, one "
        "thread per process if several run, comparable only within one run",
        "doubles: detections at the score of the row's best F1 that match no object of their own but lie on one of "
        f"their class that was found, by an IoU of {_SAME} or with {_INSIDE:.0%} of their area, in percent",
        "at_seams: doubles whose box lies on a line between two windows, in percent of all detections; "
        "whole_at_seams: those of whole frames on the same lines",
        *(
            f"{name} over whole frames: AP {verdict(*cell.minus(whole, 'AP'))}"
            for name, cell in list(cells.items())[1:]
        ),
    ]
    names = [row["frames_as"].replace(", ", ",\n") for row in rows]
    points = {metric: [row[metric] or 0.0 for row in rows] for metric in ("AP", trial.small)}
    doubles = Bars({"doubles": [row["doubles"] for row in rows]}, {"xlabel": "doubles, % of detections"})
    return trial.result(rows, notes, bar_plot(names, Bars(points, {"xlabel": "points"}), doubles))


def _row(trial: Trial, name: str, cell: Measured, whole: Measured, windows: Windows | None) -> Row:
    row = cell.row({"frames_as": name, "tokens": cell.retained}, ("AP", "AP50", trial.small), {})
    doubles, at_seams = _doubles(trial, cell, windows)
    of_whole, whole_at_seams = _doubles(trial, whole, windows)
    more = {"ms": cell.ms, "doubles": doubles, "more_doubles": doubles - of_whole}
    return {**row, **cell.versus("whole", whole), **more, "at_seams": at_seams, "whole_at_seams": whole_at_seams}


def _doubles(trial: Trial, cell: Measured, windows: Windows | None) -> tuple[float, float | None]:
    """Return the detections at the best F1 that repeat an object, in percent of them: all, and those on a seam."""
    mistakes = find_mistakes(cell.scored, trial.protocol.max_detections)
    repeated, percent = repeats(mistakes), 100 / max(len(mistakes.shown), 1)
    if windows is None:
        return percent * float(repeated.sum()), None
    sizes = [trial.dataset.size(index) for index in range(len(trial.dataset.images))]
    on_seam = repeated & on_seams(mistakes.shown, sizes, windows, trial.canvas)
    return percent * float(repeated.sum()), percent * float(on_seam.sum())


def on_seams(
    shown: Detections, sizes: Sequence[tuple[int, int]], windows: Windows, canvas: CanvasSize
) -> NDArray[np.bool_]:
    """Return which (N,) detections in images of (width, height) lie on a line between two windows over the canvas."""
    result = np.zeros(len(shown), dtype=np.bool_)
    for index, (width, height) in enumerate(sizes):
        own = np.flatnonzero(shown.image == index)
        rows, columns = fitted_size(height, width, canvas)
        corners = np.array([window.core[:2] for window in windows.over(rows, columns)])
        for axis, scale in ((0, columns / width), (1, rows / height)):
            lines = np.unique(corners[:, axis])[1:]
            low = shown.boxes[own, axis] * scale
            high = low + shown.boxes[own, axis + 2] * scale
            crosses = (low[:, None] <= lines + SHARED) & (high[:, None] >= lines - SHARED)
            result[own] |= crosses.any(axis=1)
    return result


def repeats(mistakes: Mistakes) -> NDArray[np.bool_]:
    """Return which (N,) shown detections match no box of their own but lie on one, of their class, that was found."""
    shown, truth = mistakes.shown, mistakes.truth
    result = np.zeros(len(shown), dtype=np.bool_)
    false = ~mistakes.correct & ~mistakes.neutral
    for index in range(len(truth.image_ids)):
        own = np.flatnonzero(false & (shown.image == index))
        objects = np.flatnonzero(mistakes.found & ~truth.crowd & (truth.image == index))
        boxes, annotated = shown.boxes[own], truth.boxes[objects]
        low = np.maximum(boxes[:, None, :2], annotated[None, :, :2])
        high = np.minimum((boxes[:, :2] + boxes[:, 2:])[:, None], (annotated[:, :2] + annotated[:, 2:])[None])
        inside = np.prod(np.maximum(high - low, 0), axis=2) >= _INSIDE * np.prod(boxes[:, 2:], axis=1)[:, None]
        on_object = inside | (iou_xywh(boxes, annotated) >= _SAME)
        result[own] = (on_object & (shown.labels[own, None] == truth.labels[objects])).any(axis=1)
    return result


STUDIES = (
    Study("seams", "Frames read by windows against whole frames, the same weights", seams, takes=DETECTS, frames=100),
)
