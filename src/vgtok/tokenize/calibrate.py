"""Measure a retention table: the share of tokens each percentile and gate rank keeps on a set of images.

Image files enter, a `RetentionTable` leaves. An interrupted measurement resumes from its journal.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok import __version__
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.files import locked, stamp
from vgtok.journal import Journal, is_number
from vgtok.parallel import map_with_progress
from vgtok.tokenize.canvas import CanvasSize, fit_canvas, read_image
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
    seen = stamp(job.path)
    dense, counts = sweep_counts(read_image(job.path), job.sweep)
    return {"item": str(job.path), "stamp": seen, "dense": dense, "tokens": counts}


def sweep_counts(image: NDArray[np.uint8], sweep: Sweep) -> tuple[int, list[list[list[int]]]]:
    """Return the dense grid of (H, W, 3) RGB pixels and their tokens by scorer, rank and percentile."""
    pixels = CanvasPixels(fit_canvas(image, sweep.canvas).image)
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
    return pixels.extent.dense, counts


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
        entries = (done[str(path)] for path in images)
        counted = ((Path(entry["item"]).name, entry["dense"], np.array(entry["tokens"])) for entry in entries)
        table = merged_table(name, counted, data, sweep)
        table.save(output)
        journal.path.unlink(missing_ok=True)
    return table


def merged_table(
    name: str, counted: Iterable[tuple[str, int, NDArray[np.int64]]], data: str, sweep: Sweep
) -> RetentionTable:
    """Return the table of images given one by one: file name, dense grid and (scorers, ranks, percentiles) counts.

    Counts are summed as integers, apart for each dense grid, so that the order of summation does not matter and parts
    merge exactly.
    """
    shape = (len(sweep.scorers), len(sweep.ranks), len(sweep.percentiles))
    sums: dict[int, NDArray[np.int64]] = {}
    names = hashlib.sha256()
    images = 0
    for file, dense, counts in counted:
        sums[dense] = sums.get(dense, np.zeros(shape, dtype=np.int64)) + counts.reshape(shape)
        # File names may hold bytes that are not text; Python keeps them as lone surrogates.
        names.update(f"{chr(10) if images else ''}{file}".encode(errors="surrogatepass"))
        images += 1
    shares = np.stack([sums[dense] / dense for dense in sorted(sums)]).sum(axis=0) / images
    curves = tuple(
        RetentionCurve(scorer, rank, sweep.percentiles, tuple(float(share) for share in shares[i, j].round(8)))
        for i, scorer in enumerate(sweep.scorers)
        for j, rank in enumerate(sweep.ranks)
    )
    measured_on = {
        "data": data,
        "images": images,
        "names_sha256": names.hexdigest(),
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
