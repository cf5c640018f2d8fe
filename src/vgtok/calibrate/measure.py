"""Measure a retention table over a set of images: tokens kept at 32 percentiles, for every scorer and gate rank.

One line per image is appended to a journal beside the output, so a killed run goes on where it stopped.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from vgtok import __version__
from vgtok.errors import InputError
from vgtok.parallel import map_with_progress
from vgtok.tokenize.canvas import DEFAULT_SIZE, CanvasSize
from vgtok.tokenize.frame import Frame
from vgtok.tokenize.gate import GATES, gated_splits
from vgtok.tokenize.retention import RetentionCurve, RetentionTable
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import busy_nodes, count_tokens
from vgtok.tokenize.tokenizer import Tokenizer

RUNGS = (
    *np.arange(0.0, 70.1, 5.0).tolist(),
    *np.arange(72.5, 90.1, 2.5).tolist(),
    *(91.5, 93.0, 94.5, 96.0, 97.0, 98.0, 99.0, 99.5, 100.0),
)
"""The 32 percentiles of a sweep, closer together where retention falls fastest."""

RANKS = (0.0, 0.05, 0.10, 0.20, 0.30, 0.40)


@dataclass(frozen=True)
class Sweep:
    """What is measured on each image."""

    scorers: tuple[str, ...] = ("tophat",)
    ranks: tuple[float, ...] = RANKS
    percentiles: tuple[float, ...] = RUNGS
    canvas: CanvasSize = DEFAULT_SIZE

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
    """Tokens of one image by scorer, rank and percentile, nested lists in that order, and its dense count."""
    sweep = job.sweep
    frame = Frame(Tokenizer(budget=1.0, canvas=sweep.canvas).fit(job.path).image)
    structure = GATES["lambda_min"](frame) if any(sweep.ranks) else None
    counts = []
    for scorer in sweep.scorers:
        scores = SCORES[scorer](frame)
        busy = [busy_nodes(scores, frame.extent, percentile) for percentile in sweep.percentiles]
        counts.append(
            [
                [count_tokens(gated_splits(nodes, structure, rank), frame.extent) for nodes in busy]
                for rank in sweep.ranks
            ]
        )
    return {"image": job.path.name, "dense": frame.extent.dense, "tokens": counts}


def measure_table(
    name: str, images: Sequence[Path], data: str, sweep: Sweep, output: Path, workers: int
) -> RetentionTable:
    """Sweep the images of the data set called `data` and write the table to `output`; a killed run resumes."""
    journal = _Journal(output.with_name(output.name + ".partial"), sweep, images)
    done = journal.entries()
    jobs = [SweepJob(path, sweep) for path in images if path.name not in done]
    for entry in map_with_progress(sweep_image, jobs, workers=workers, label=f"calibrating on {data}"):
        journal.append(entry)
        done[entry["image"]] = entry
    table = _table(name, [done[path.name] for path in images], data, sweep)
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
        "names_sha256": _digest([entry["image"] for entry in entries]),
        "canvas": sweep.canvas,
        "gate": "lambda_min",
        "vgtok": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    return RetentionTable(name, measured_on, curves)


class _Journal:
    """Entries of a run under way: a header that says what is measured, then one JSON line per image."""

    def __init__(self, path: Path, sweep: Sweep, images: Sequence[Path]) -> None:
        self.path = path
        self.header = {"sweep": json.loads(json.dumps(asdict(sweep))), "images": _digest([str(p) for p in images])}

    def entries(self) -> dict[str, dict[str, Any]]:
        """What an earlier run left, by image name; a journal of another sweep is refused, a torn last line dropped."""
        if not self.path.exists():
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.header) + "\n")
            except OSError as error:
                raise InputError(f"{self.path}: cannot be written ({error.strerror})") from None
            return {}
        whole = [line for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if not whole or json.loads(whole[0]) != self.header:
            raise InputError(
                f"{self.path}: left by a run over other images or settings; delete it or choose another --out"
            )
        self.path.write_text("".join(whole))
        return {entry["image"]: entry for entry in map(json.loads, whole[1:])}

    def append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
