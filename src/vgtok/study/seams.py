"""A study of our own: frames read by overlapping windows against the same frames read whole, by the same weights.

Windows are cut from the canvas, so that objects keep their size, and both ways share one partition of it: what differs
is that a window shows the model less, and that the boxes of windows are merged.
"""

import time
from dataclasses import dataclass

import numpy as np

from vgtok.detect.config import Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.evaluate.evaluation import find_mistakes
from vgtok.slicing.windows import Windows
from vgtok.study.accuracy import Measured, Trial, open_trial, verdict
from vgtok.study.cells import Found, Reader, found
from vgtok.study.paper import GATED
from vgtok.study.result import DETECTS, Bars, Inputs, Result, Row, Study, bar_plot
from vgtok.study.slicing import duplicated
from vgtok.tokenize.canvas import CanvasSize, fit_canvas

BUDGET = 0.40
SIZES = (Windows(1024, 640), Windows(1024, 640, overlap=256))
"""Windows small enough to give a canvas of 2048 x 1152 px many seams."""


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
    rows = [_row(trial, name, cell, whole) for name, cell in cells.items()]
    notes = [
        f"every reading at {BUDGET:.0%} of the tokens of a frame, by one partition; ms: encoder, head and merge, one "
        "thread per process if several run, comparable only within one run",
        "doubles: detections at the score of the row's best F1 whose box, or the better one over it, is covered to 50% "
        "by one of the same class, in percent; crowds have them in whole frames too, so the difference counts",
        *(
            f"{name} over whole frames: AP {verdict(*cell.minus(whole, 'AP'))}"
            for name, cell in list(cells.items())[1:]
        ),
    ]
    names = [row["frames_as"].replace(", ", ",\n") for row in rows]
    points = {metric: [row[metric] or 0.0 for row in rows] for metric in ("AP", trial.small)}
    doubles = Bars({"doubles": [row["doubles"] for row in rows]}, {"xlabel": "doubles, % of detections"})
    return trial.result(rows, notes, bar_plot(names, Bars(points, {"xlabel": "points"}), doubles))


def _row(trial: Trial, name: str, cell: Measured, whole: Measured) -> Row:
    row = cell.row({"frames_as": name, "tokens": cell.retained}, ("AP", "AP50", trial.small), {})
    doubles = _doubles(trial, cell)
    more = {"ms": cell.ms, "doubles": doubles, "more_doubles": doubles - _doubles(trial, whole)}
    return {**row, **cell.versus("whole", whole), **more}


def _doubles(trial: Trial, cell: Measured) -> float:
    """Return the detections at the best F1 that repeat a better one, in percent of them."""
    kept = cell.scored.detections
    shown = kept.take(kept.scores >= find_mistakes(cell.scored, trial.protocol.max_detections).threshold)
    images = range(len(trial.dataset.images))
    again = sum(int(duplicated(shown.take(shown.image == index)).sum()) for index in images)
    return 100 * again / max(len(shown), 1)


STUDIES = (Study("seams", "Frames read by windows against whole frames, the same weights", seams, takes=DETECTS),)
