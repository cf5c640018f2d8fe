"""Detections of one model under many tokenizers, cached on disk per image and shared by the studies.

A cell is a model, a head, a way to read an image and the code that does so. Its folder is named by all four, the files
in it by the content of each image. Each image is decoded, resized and scored once for all cells that lack it. Finished
files survive a kill. The package version does not change between releases, so the code is identified by a digest of the
syntax trees of the sources: comments and layout do not count.
"""

import ast
import hashlib
import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from vgtok.detect.config import Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.detect.loading import load
from vgtok.detect.model import CoDetr
from vgtok.detect.result import Result, Timings
from vgtok.errors import InputError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import Mapper, map_with_progress
from vgtok.study.tokenizers import partitions
from vgtok.tokenize.canvas import Canvas, read_image
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

FOLDER = "cells"

DETECTION = (
    "tokenize",
    "encode",
    "detect",
    "study/cells.py",
    "study/tokenizers.py",
    "study/slicing.py",
    "slicing",
    "study/seams.py",
)
"""The code that detections depend on: from pixels to boxes, and the readers of the studies."""

TRAINING = (*DETECTION[:3], "train", "evaluate", "data")
"""The code that a training run on rendered scenes depends on."""

_LIBRARIES = ("numpy", "opencv-python-headless", "pillow", "torch")


@dataclass(frozen=True)
class Found:
    """The detections of one cell in one image.

    `boxes` (N, 4) float32 x0 y0 x1 y1 in image pixels, `scores` (N,) float32, `labels` (N,) int16 of the model's
    classes; `retained` tokens as a share of the dense grid, `ms` the time of encoder and head.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int16]
    retained: float
    ms: float


def found(boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any], retained: float, ms: float) -> Found:
    """Return detections in the types they are stored in."""
    return Found(boxes.astype(np.float32), scores.astype(np.float32), labels.astype(np.int16), retained, ms)


ByHead = tuple[Found, ...]
"""The detections of one image by the heads of the stores they go to."""

CustomReader = Callable[[Detector, Pixels, int, Head], Found]
"""Another way to read an image: a frozen dataclass, identified on disk by its repr."""

Reader = Tokenizer | CustomReader


@dataclass(frozen=True)
class CellStore:
    """The cells of one detector in a folder; `fingerprint` identifies its weights."""

    folder: Path
    fingerprint: str
    head: Head
    max_detections: int

    def cell(self, reader: Reader) -> Path:
        """Return the folder of the cell of a reader."""
        text = json.dumps([code_digest(DETECTION), self.fingerprint, self.head, self.max_detections, repr(reader)])
        return self.folder / FOLDER / hashlib.sha256(text.encode()).hexdigest()[:16]

    def load(self, reader: Reader, image: str) -> Found | None:
        """Return the detections in the image with that digest, or None if they are missing or damaged."""
        try:
            # Read from memory: numpy leaves the file of a damaged archive open.
            data = io.BytesIO((self.cell(reader) / f"{image}.npz").read_bytes())
            with np.load(data, allow_pickle=False) as arrays:
                retained, ms = arrays["measured"].tolist()
                read = Found(arrays["boxes"], arrays["scores"], arrays["labels"], retained, ms)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return read if read.boxes.shape == (len(read.scores), 4) and len(read.labels) == len(read.scores) else None

    def save(self, reader: Reader, image: str, found: Found) -> None:
        """Write the detections, completely or not at all."""
        folder = self.cell(reader)
        if not (folder / "cell.json").is_file():
            described = {"reader": repr(reader), "head": self.head, "max_detections": self.max_detections}
            text = json.dumps({**described, "weights": self.fingerprint, "code": code_digest(DETECTION)}, indent=1)
            write_text(folder / "cell.json", text + "\n")
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            boxes=found.boxes,
            scores=found.scores,
            labels=found.labels,
            measured=np.array([found.retained, found.ms]),
        )
        write_bytes(folder / f"{image}.npz", buffer.getvalue())


def fingerprint(detector: Detector) -> str:
    """Return a digest of the configuration, all weights and the precision of a detector."""
    digest = hashlib.sha256(json.dumps(detector.model.config.to_dict(), sort_keys=True).encode())
    if not isinstance(detector.model, CoDetr):
        # A model of another library: what runs it is not part of DETECTION.
        digest.update(code_digest(("hosts",)).encode())
    for name, tensor in sorted(detector.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).tobytes())
    if detector.precision != "float32":
        digest.update(detector.precision.encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class FrameJob:
    """One image and the readers that lack it, for a process that loads the named detector itself."""

    model: str
    precision: str
    stores: tuple[CellStore, ...]
    path: Path
    image: str
    readers: tuple[Reader, ...]


def run_cells(
    model: str,
    detector: Detector,
    store: CellStore,
    readers: Sequence[Reader],
    images: Sequence[Path],
    *,
    workers: int,
    label: str,
    mapper: Mapper | None = None,
    other_head: Head | None = None,
) -> dict[Reader, list[Found]]:
    """Return the detections of every reader in every image; compute only those the store lacks.

    On a CPU several processes with one thread each are faster than one process with several threads. With a `mapper`
    it decides where images are computed, and results are stored as they arrive. What is computed is also stored for the
    `other_head`, which shares its features.
    """
    stores = (store, *([replace(store, head=other_head)] if other_head else []))
    wanted = tuple(dict.fromkeys(readers))
    digests = [image_digest(path) for path in images]
    known = {(image, reader): store.load(reader, image) for image in digests for reader in wanted}
    jobs = []
    for path, image in zip(images, digests, strict=True):
        lacking = tuple(reader for reader in wanted if known[image, reader] is None)
        if lacking:
            jobs.append(FrameJob(model, detector.precision, stores, path, image, lacking))
    workers = min(workers, len(jobs)) if detector.device.type == "cpu" else 1
    if mapper is not None:
        found = _stored(jobs, mapper(_run_elsewhere, jobs, label=label))
    elif workers > 1:
        found = map_with_progress(_run_in_process, jobs, workers=workers, label=label)
    else:
        found = map_with_progress(lambda job: _run(job, detector), jobs, workers=1, label=label)
    for job, findings in zip(jobs, found, strict=True):
        known |= {(job.image, reader): heads[0] for reader, heads in zip(job.readers, findings, strict=True)}
    return {reader: [cast(Found, known[image, reader]) for image in digests] for reader in wanted}


def _run(job: FrameJob, detector: Detector) -> list[ByHead]:
    found = {}
    for reader, heads in _detect(detector, read_image(job.path), job.readers, job.stores):
        _save(job, reader, heads)
        found[reader] = heads
    return [found[reader] for reader in job.readers]


def _save(job: FrameJob, reader: Reader, heads: ByHead) -> None:
    # Last the store that is asked first: what it has, the others have too.
    for store, one in reversed(list(zip(job.stores, heads, strict=True))):
        store.save(reader, job.image, one)


def _run_elsewhere(job: FrameJob) -> list[ByHead]:
    """Return the detections of an image without storing them: another machine may not see the store."""
    detector = _loaded(job.model, job.precision, job.stores[0].fingerprint)
    found = dict(_detect(detector, read_image(job.path), job.readers, job.stores))
    return [found[reader] for reader in job.readers]


def _stored(jobs: Sequence[FrameJob], found: Iterator[list[ByHead]]) -> Iterator[list[ByHead]]:
    """Store what other machines found, as it arrives, and yield it."""
    for job, findings in zip(jobs, found, strict=True):
        for reader, heads in zip(job.readers, findings, strict=True):
            _save(job, reader, heads)
        yield findings


def _run_in_process(job: FrameJob) -> list[ByHead]:
    return _run(job, _loaded(job.model, job.precision, job.stores[0].fingerprint))


@cache
def _loaded(model: str, precision: str, expected: str) -> Detector:
    torch.set_num_threads(1)
    detector = load(model, device="cpu", dtype=precision)
    if fingerprint(detector) != expected:
        raise InputError(f"--model: '{model}' changed while the study ran; run it again")
    return detector


def _detect(
    detector: Detector, pixels: Pixels, readers: Sequence[Reader], stores: tuple[CellStore, ...]
) -> Iterator[tuple[Reader, ByHead]]:
    """Yield the detections of each reader in one image; tokenizers with the same canvas share it and its scores."""
    heads, most = tuple(store.head for store in stores), stores[0].max_detections
    by_canvas: dict[object, list[Tokenizer]] = {}
    for reader in readers:
        if isinstance(reader, Tokenizer):
            by_canvas.setdefault((reader.canvas, reader.padding), []).append(reader)
        else:
            yield reader, tuple(reader(detector, pixels, most, head) for head in heads)
    for tokenizers in by_canvas.values():
        canvas = tokenizers[0].pad(detector.fit(pixels, tokenizers[0].canvas))
        for tokenizer, tokens in zip(tokenizers, partitions(canvas, tokenizers), strict=True):
            started = time.perf_counter()
            results = (
                [detector.on_canvas(pixels, canvas, tokens, max_detections=most, head=heads[0])]
                if len(heads) == 1
                else _by_heads(detector, pixels, canvas, tokens, most, heads)
            )
            taken = 1000 * (time.perf_counter() - started)
            yield (
                tokenizer,
                tuple(found(result.boxes, result.scores, result.labels, tokens.retained, taken) for result in results),
            )


def _by_heads(
    detector: Detector, pixels: Pixels, canvas: Canvas, tokens: Tokens, most: int, heads: Sequence[Head]
) -> list[Result]:
    """Return what `Detector.on_canvas` returns of an (H, W, 3) image by each head, with its features computed once."""
    model = detector.model
    with detector.running():
        given = torch.from_numpy(canvas.image.copy()).permute(2, 0, 1).to(detector.device)
        maps = model.encoder([given], [tokens]).maps
        sites = model.sites(maps, [tokens])[0] if detector.sparse_head else None
        predictions = model.predict_heads(maps[0], (tokens.height, tokens.width), most, heads, sites)
    return [
        Result.from_canvas(
            tuple(part.float().cpu().numpy() for part in prediction),
            canvas,
            score_threshold=0.0,
            class_names=detector.names,
            tokens=tokens,
            timings=Timings(0.0, 0.0, 0.0),
            image=pixels,
        )
        for prediction in predictions
    ]


def image_digest(path: Path) -> str:
    """Return the name of an image within a cell: a digest of its file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:24]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


@cache
def code_digest(parts: tuple[str, ...]) -> str:
    """Return a digest of modules and packages of vgtok, named by path, and of the versions of the libraries."""
    digest = hashlib.sha256("\n".join(f"{name} {_version(name)}" for name in _LIBRARIES).encode())
    root = Path(str(files("vgtok")))
    for part in parts:
        place = root / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            tree = ast.dump(ast.parse(path.read_bytes()))
            digest.update(f"{path.relative_to(root).as_posix()}\n{tree}\n".encode())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        # The library is installed under another name, like opencv-python, or without metadata.
        return "unknown"
