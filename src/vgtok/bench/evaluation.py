"""What evaluating a data set costs, against pycocotools on the same two files.

548 images with 500 detections each, like VisDrone val at its cap. Each side runs in its own process, with its own peak
memory, and is timed from opening the files to the AP; imports do not count.
"""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vgtok.bench.timing import Cost, in_own_process, process_peak_megabytes
from vgtok.errors import InputError
from vgtok.files import write_text

IMAGES = 548
CAP = 500
_CLASSES = 10
_BOXES = 70
"""Boxes per image, about VisDrone val's 38,759 over 548."""

_FRAME = (1360, 765)


@dataclass(frozen=True)
class EvaluationCost(Cost):
    """Seconds and peak megabytes of both, their ratio, and the difference of the two AP in points."""

    images: int
    detections: int
    vgtok_s: float
    pycocotools_s: float
    pycocotools_over_vgtok: float
    vgtok_peak_mb: float
    pycocotools_peak_mb: float
    ap_difference: float


def measure_evaluation() -> EvaluationCost:
    """Evaluate random detections both ways."""
    if find_spec("pycocotools") is None:
        raise InputError("bench evaluate: compares with pycocotools, which is missing; pip install pycocotools")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, results = random_files(folder, IMAGES, CAP)
        ours, ours_s, ours_mb = in_own_process(_measured, _with_vgtok, truth, results)
        theirs, theirs_s, theirs_mb = in_own_process(_measured, _with_pycocotools, truth, results)
    return EvaluationCost(
        IMAGES, IMAGES * CAP, ours_s, theirs_s, theirs_s / ours_s, ours_mb, theirs_mb, abs(ours - theirs)
    )


def random_files(folder: Path, images: int, detections: int) -> tuple[Path, Path]:
    """Write a COCO annotation file and a results file; half of the detections lie near boxes, half anywhere."""
    random = np.random.default_rng(4)
    entries: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for identity in range(1, images + 1):
        boxes = _random_boxes(random, _BOXES)
        labels = random.integers(_CLASSES, size=_BOXES)
        for box, label in zip(boxes.tolist(), labels.tolist(), strict=True):
            fields = {"id": len(entries) + 1, "image_id": identity, "category_id": label + 1, "iscrowd": 0}
            entries.append({**fields, "bbox": box, "area": box[2] * box[3]})
        near = random.integers(_BOXES, size=detections // 2)
        shift = 0.1 * random.standard_normal((len(near), 4)) * np.tile(boxes[near, 2:], 2)
        moved = (boxes[near] + shift).clip(0.5)
        around = np.concatenate([moved, _random_boxes(random, detections - len(near))])
        classes = np.concatenate([labels[near], random.integers(_CLASSES, size=detections - len(near))])
        for box, label, score in zip(around.tolist(), classes.tolist(), random.random(detections), strict=True):
            found.append({"image_id": identity, "category_id": label + 1, "bbox": box, "score": float(score)})
    document = {
        "images": [
            {"id": identity, "file_name": f"{identity:06d}.jpg", "width": _FRAME[0], "height": _FRAME[1]}
            for identity in range(1, images + 1)
        ],
        "categories": [{"id": number, "name": f"class {number}"} for number in range(1, _CLASSES + 1)],
        "annotations": entries,
    }
    paths = folder / "truth.json", folder / "results.json"
    for path, content in zip(paths, (document, found), strict=True):
        write_text(path, json.dumps(content))
    return paths


def _random_boxes(random: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (N, 4) boxes x y width height, most of them small."""
    sizes = np.exp(random.normal(3.2, 0.7, (count, 2))).clip(3, 400)
    places = random.random((count, 2)) * (np.array(_FRAME) - sizes).clip(1)
    return np.concatenate([places, sizes], axis=1)


def _measured(
    prepare: Callable[[Path, Path], Callable[[], float]], truth: Path, results: Path
) -> tuple[float, float, float]:
    """Return AP in points, seconds and peak megabytes of one way."""
    run = prepare(truth, results)
    start = time.perf_counter()
    average = run()
    seconds = time.perf_counter() - start
    return average, seconds, process_peak_megabytes()


def _with_vgtok(truth: Path, results: Path) -> Callable[[], float]:
    import faster_coco_eval  # noqa: F401  imported before the clock starts

    from vgtok.data.coco import open_coco
    from vgtok.evaluate.detections import read_predictions
    from vgtok.evaluate.evaluation import evaluate
    from vgtok.evaluate.protocols import protocol_for

    def run() -> float:
        dataset = open_coco(truth, truth.parent)
        result = evaluate(dataset, read_predictions(results, dataset), protocol_for("coco", "coco", CAP))
        assert result.metrics["AP"] is not None
        return result.metrics["AP"]

    return run


def _with_pycocotools(truth: Path, results: Path) -> Callable[[], float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def run() -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            ground_truth = COCO(str(truth))
            evaluator = COCOeval(ground_truth, ground_truth.loadRes(str(results)), "bbox")
            evaluator.params.maxDets = [CAP]
            evaluator.evaluate()
            evaluator.accumulate()
        precision = evaluator.eval["precision"][:, :, :, 0, 0]
        return 100 * float(precision[precision > -1].mean())

    return run
