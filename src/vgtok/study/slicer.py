"""A study of our own: what a share of the tiles keeps of what all of them gain, by every guide and at random.

Each frame is read once: a coarse look and all tiles, cached on disk. Every row is then made of these looks by the same
code that `vgtok.Slicer` runs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.subset import evenly_spaced
from vgtok.evaluate.classes import map_text, named_map
from vgtok.evaluate.detections import GroundTruth, gather_detections, ground_truth, top_scoring
from vgtok.evaluate.evaluation import Scored, evaluate_scored
from vgtok.evaluate.protocols import ScoringRules, protocol_for, without_ignored
from vgtok.slicing.guides import GUIDES, pixel_values
from vgtok.slicing.slicer import Slicer
from vgtok.study.looks import COARSE, FINE, OVERLAP, TILE, Frame, Reader, read_frames, readers_of
from vgtok.study.result import Inputs, Line, Panel, Read, Result, Row, Study, line_plot
from vgtok.tokenize.canvas import read_image

SHARES = (0.25, 0.5)
RANDOM = "random"
_SEEDS = 3
"""Random orders per frame; their rows show the mean."""
_TIMED = 5
"""Frames that are timed."""


@dataclass(frozen=True, eq=False)
class _Scorer:
    """What rows are scored by: the protocol, the truth of the images, and the data's label of each class of a model."""

    protocol: ScoringRules
    truth: GroundTruth
    labels: NDArray[np.int64]
    data: str

    def __call__(self, found: Sequence[Any]) -> dict[str, float]:
        """Return AP, AP50 and the AP of the smallest band for the detections of each image."""
        detections = gather_detections(found, self.labels)
        truth, kept = without_ignored(self.truth, detections, self.protocol.drops_boxes)
        scored = Scored(truth, top_scoring(kept, self.protocol.max_detections), len(detections) - len(kept))
        metrics = evaluate_scored(self.data, scored, len(detections), self.protocol).metrics
        small = next(iter(self.protocol.bands))
        return {"ap": metrics["AP"] or 0.0, "ap50": metrics["AP50"] or 0.0, "aps": metrics[small] or 0.0}


@dataclass(frozen=True)
class _Times:
    """Milliseconds of a coarse look, a tile, the pixel guide and a merge: medians over frames."""

    coarse: float
    tile: float
    pixels: float
    merge: float

    def total(self, tiles: int, guide: str) -> float:
        """Return the time of a call that reads so many tiles."""
        guided = self.pixels if guide in ("pixels", "both") else 0.0
        return self.coarse + guided + tiles * self.tile + self.merge


def _timed(reader: Reader, images: Sequence[Path]) -> _Times:
    slicer = Slicer(reader, budget=1.0, guide="scores", coarse=COARSE, fine=FINE, tile=TILE, overlap=OVERLAP)
    measured = []
    for path in images[:: max(1, len(images) // _TIMED)][:_TIMED]:
        pixels = read_image(path)
        found = slicer(pixels)
        started = time.perf_counter()
        pixel_values(pixels, found.layout)
        guided = 1e3 * (time.perf_counter() - started)
        measured.append((found.spent.coarse, found.spent.fine / len(found.layout), guided, found.spent.merge))
    return _Times(*np.median(measured, axis=0).tolist())


def slicer(inputs: Inputs) -> Result:
    """Measure no tile, a quarter, a half and all of them by every guide and at random, for each model."""
    whole = cast(AnnotatedDataset, inputs.annotated)
    dataset = whole if inputs.limit is None else evenly_spaced(whole, inputs.limit)
    protocol = protocol_for(None, dataset.name, None)
    truth = ground_truth(dataset, protocol.region_roles)
    rows: list[Row] = []
    notes = [
        f"tiles of at most {TILE} px with {OVERLAP} px of overlap, of the frame at {FINE} px; one coarse look at "
        f"{COARSE} px; merged by NMS; protocol {protocol.name}, at most {protocol.max_detections} detections",
        "kept: share of what all tiles gain over none; megapixels: what the detector is given per frame; "
        f"{RANDOM}: mean of {_SEEDS} orders; ms: from medians over {_TIMED} frames, comparable only within one run",
    ]
    for model, reader, labels in readers_of(inputs, dataset):
        name = Path(model).name
        frames = read_frames(model, reader, dataset.images, inputs.out, inputs.workers)
        own = _rows(name, frames, _Scorer(protocol, truth, labels, dataset.name), _timed(reader, dataset.images))
        rows += own
        classes = map_text(named_map(labels, reader.names, dataset.names))
        notes += [f"{name}, classes: {classes}", *_verdict(name, own)]
    return Result(
        rows,
        notes,
        plot=line_plot(*(_panel(name, rows) for name in dict.fromkeys(row["model"] for row in rows))),
        also={"frames": [path.name for path in dataset.images]},
        read=Read(dataset.name, len(dataset.images)),
    )


def _rows(model: str, frames: Sequence[Frame], score: _Scorer, times: _Times) -> list[Row]:
    """Return the rows of one model."""

    def measured(share: float, orders: Sequence[NDArray[np.int64]], guide: str) -> dict[str, Any]:
        counts = [round(share * len(frame.layout)) for frame in frames]
        chosen = zip(frames, orders, counts, strict=True)
        metrics = score([frame.found(order[:count].tolist()) for frame, order, count in chosen])
        spent = [frame.megapixels(count) for frame, count in zip(frames, counts, strict=True)]
        mean = float(np.mean(counts))
        return {"model": model, "share": share, "guide": guide, **metrics, "megapixels": float(np.mean(spent))} | {
            "ms": times.total(round(mean), guide)
        }

    plain = [np.arange(len(frame.layout)) for frame in frames]
    none, every = measured(0.0, plain, "-"), measured(1.0, plain, "-")
    rows = [none]
    for share in SHARES:
        rows += [measured(share, [frame.order(guide) for frame in frames], guide) for guide in GUIDES]
        draws = []
        for seed in range(_SEEDS):
            generators = [np.random.default_rng((seed, place)) for place in range(len(frames))]
            orders = [one.permutation(len(frame.layout)) for one, frame in zip(generators, frames, strict=True)]
            draws.append(measured(share, orders, RANDOM))
        mean = {key: float(np.mean([draw[key] for draw in draws])) for key in ("ap", "ap50", "aps")}
        rows.append(draws[0] | mean)
    rows.append(every)
    return [_with_kept(row, none, every) for row in rows]


def _with_kept(row: Mapping[str, Any], none: Mapping[str, Any], every: Mapping[str, Any]) -> Row:
    """Add what a row keeps of the gain of all tiles, after its metrics."""
    gain = every["ap"] - none["ap"]
    kept = (row["ap"] - none["ap"]) / gain if gain > 0 else None
    return {key: row[key] for key in ("model", "share", "guide", "ap", "ap50", "aps")} | {
        "kept": kept,
        "megapixels": row["megapixels"],
        "ms": row["ms"],
    }


def _verdict(model: str, rows: Sequence[Row]) -> list[str]:
    """Return a sentence per share: what the default guide keeps, beside random tiles."""
    gain = rows[-1]["ap"] - rows[0]["ap"]
    lines = [f"{model}: all tiles gain {gain:+.2f} AP and {rows[-1]['aps'] - rows[0]['aps']:+.2f} on small objects"]
    for share in SHARES:
        kept = {row["guide"]: row["kept"] for row in rows if row["share"] == share}
        if kept["both"] is not None:
            listed = ", ".join(f"{name} {value:.0%}" for name, value in kept.items())
            lines.append(f"{model}, {share:.0%} of tiles keep of that: {listed}")
    return lines


def _panel(model: str, rows: Sequence[Row]) -> Panel:
    own = [row for row in rows if row["model"] == model]
    ends = [own[0], own[-1]]
    lines = []
    for color, guide in enumerate((*GUIDES, RANDOM)):
        points = [ends[0], *(row for row in own if row["guide"] == guide), ends[1]]
        lines.append(Line([row["share"] for row in points], [row["ap"] for row in points], guide, color))
    return Panel(lines, {"xlabel": "share of tiles read", "ylabel": "AP", "title": model})


STUDIES = (Study("slicer", "A budget of tiles for any detector", slicer, takes=("data", "model", "map", "limit")),)
