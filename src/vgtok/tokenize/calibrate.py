"""Measure a retention table: the share of tokens each percentile and gate rank keeps on a set of images.

Image files enter, a `RetentionTable` leaves. An interrupted measurement resumes from its journal.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vgtok import __version__
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.files import locked, stamp
from vgtok.journal import Journal, is_number
from vgtok.parallel import map_with_progress
from vgtok.tokenize.canvas import CanvasSize
from vgtok.tokenize.geometry import CanvasPixels
from vgtok.tokenize.retention import RetentionCurve, RetentionTable
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import GATES, busy_nodes, count_tokens, gated_splits
from vgtok.tokenize.tokenizer import Tokenizer

RUNGS = (
    *np.arange(0.0, 70.1, 5.0).tolist(),
    *np.arange(72.5, 90.1, 2.5).tolist(),
    *(91.5, 93.0, 94.5, 96.0, 97.0, 98.0, 99.0, 99.5, 100.0),
)
"""The 32 percentiles of a sweep, denser where retention falls fastest."""

RANKS = (0.0, 0.05, 0.10, 0.20, 0.30, 0.40)


@dataclass(frozen=True)
class Sweep:
    """The settings measured on each image."""

    scorers: tuple[str, ...] = ("tophat",)
    ranks: tuple[float, ...] = RANKS
    percentiles: tuple[float, ...] = RUNGS
    canvas: CanvasSize = DEFAULT_CANVAS

    def __post_init__(self) -> None:
        for scorer in self.scorers:
            for rank in self.ranks:
                Tokenizer(percentile=self.percentiles[0], rank=rank, scorer=scorer, canvas=self.canvas)


@dataclass(frozen=True)
class SweepJob:
    """One image of a sweep."""

    path: Path
    sweep: Sweep


def sweep_image(job: SweepJob) -> dict[str, Any]:
    """Count the tokens of one image by scorer, rank and percentile (nested lists in that order) and its dense grid."""
    sweep, seen = job.sweep, stamp(job.path)
    pixels = CanvasPixels(Tokenizer(budget=1.0, canvas=sweep.canvas).to_canvas(job.path).image)
    structure = GATES["lambda_min"](pixels) if any(sweep.ranks) else None
    counts = []
    for scorer in sweep.scorers:
        scores = SCORES[scorer](pixels)
        busy = [busy_nodes(scores, pixels.extent, percentile) for percentile in sweep.percentiles]
        counts.append(
            [
                [count_tokens(gated_splits(nodes, structure, rank), pixels.extent) for nodes in busy]
                for rank in sweep.ranks
            ]
        )
    return {"item": str(job.path), "stamp": seen, "dense": pixels.extent.dense, "tokens": counts}


def measure_table(
    name: str, images: Sequence[Path], data: str, sweep: Sweep, output: Path, workers: int
) -> RetentionTable:
    """Sweep the images of the data set called `data` and write the table to `output`; resume an interrupted run."""
    settings = {"sweep": asdict(sweep), "images": _digest([str(path) for path in images])}
    with locked(output.with_name(f".{output.name}.lock"), output):
        journal = Journal(output.with_name(f"{output.name}.partial"), settings, partial(_is_measured, sweep=sweep))
        # An image that has changed since it was measured is measured again.
        done = {item: entry for item, entry in journal.entries.items() if entry.get("stamp") == stamp(Path(item))}
        jobs = [SweepJob(path, sweep) for path in images if str(path) not in done]
        for entry in map_with_progress(sweep_image, jobs, workers=workers, label=f"calibrating on {data}"):
            journal.add(entry["item"], entry)
            done[entry["item"]] = entry
        table = _table(name, [done[str(path)] for path in images], data, sweep)
        table.save(output)
        journal.path.unlink(missing_ok=True)
    return table


def _table(name: str, entries: Sequence[Mapping[str, Any]], data: str, sweep: Sweep) -> RetentionTable:
    # (images, scorers, ranks, percentiles) of shares, averaged over images
    shares = np.stack([np.array(entry["tokens"]) / entry["dense"] for entry in entries]).mean(axis=0)
    curves = tuple(
        RetentionCurve(scorer, rank, sweep.percentiles, tuple(float(share) for share in shares[i, j].round(8)))
        for i, scorer in enumerate(sweep.scorers)
        for j, rank in enumerate(sweep.ranks)
    )
    measured_on = {
        "data": data,
        "images": len(entries),
        "names_sha256": _digest([Path(entry["item"]).name for entry in entries]),
        "canvas": sweep.canvas,
        "gate": "lambda_min",
        "vgtok": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    return RetentionTable(name, measured_on, curves)


def _is_measured(entry: Mapping[str, Any], sweep: Sweep) -> bool:
    """Return whether an entry of the journal holds the counts of one image by this sweep."""
    dense = entry.get("dense")
    shape = (len(sweep.scorers), len(sweep.ranks), len(sweep.percentiles))
    try:
        counts = np.array(entry.get("tokens"))
    except ValueError:
        return False
    # Lists of unequal length, text and integers beyond 64 bits give arrays of other types.
    return (
        is_number(dense)
        and counts.dtype.kind == "i"
        and counts.shape == shape
        and bool(((counts > 0) & (counts <= dense)).all())
    )


def _digest(names: Sequence[str]) -> str:
    # File names may hold bytes that are not text; Python keeps them as lone surrogates.
    return hashlib.sha256("\n".join(names).encode(errors="surrogatepass")).hexdigest()
