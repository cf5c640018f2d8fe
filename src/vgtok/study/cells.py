"""Detections of one model under many tokenizers, kept on disk image by image so that studies share them.

A cell is a model, a head, a way to read a frame and the code that does so; its folder is named by all four, the files
in it by the content of each image. Frames come outermost: one is decoded, resized and scored once for all cells that
lack it, and what is done is there after a kill.
"""

import hashlib
import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from vgtok.detect.config import Head
from vgtok.detect.detector import Detector, Pixels
from vgtok.detect.loading import load
from vgtok.errors import InputError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import map_with_progress
from vgtok.study.counts import partitions
from vgtok.study.sources import DETECTION, code_digest
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.images import read_image
from vgtok.tokenize.tokenizer import Tokenizer

FOLDER = "cells"


@dataclass(frozen=True)
class Found:
    """What one cell found in one image.

    `boxes` (N, 4) float32 x0 y0 x1 y1 in the image's pixels, `scores` (N,) float32, `labels` (N,) int16 of the model's
    classes; `retained` tokens as a share of the dense grid, `ms` of encoder and head.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int16]
    retained: float
    ms: float


CustomReader = Callable[[Detector, Pixels, int, Head], Found]
"""Another way to read a frame: a frozen dataclass, whose repr is its name on disk."""

Reader = Tokenizer | CustomReader


@dataclass(frozen=True)
class CellStore:
    """The cells of one detector under a folder; `fingerprint` stands for its weights."""

    folder: Path
    fingerprint: str
    head: Head
    max_detections: int

    def cell(self, reader: Reader) -> Path:
        """The folder of a reader's cell."""
        text = json.dumps([code_digest(DETECTION), self.fingerprint, self.head, self.max_detections, repr(reader)])
        return self.folder / FOLDER / hashlib.sha256(text.encode()).hexdigest()[:16]

    def load(self, reader: Reader, image: str) -> Found | None:
        """What the cell found in the image of that digest; None where it is not there or damaged."""
        try:
            # From memory: of a damaged archive numpy would leave the file open.
            data = io.BytesIO((self.cell(reader) / f"{image}.npz").read_bytes())
            with np.load(data, allow_pickle=False) as arrays:
                retained, ms = arrays["measured"].tolist()
                found = Found(arrays["boxes"], arrays["scores"], arrays["labels"], retained, ms)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return found if found.boxes.shape == (len(found.scores), 4) and len(found.labels) == len(found.scores) else None

    def save(self, reader: Reader, image: str, found: Found) -> None:
        """Keep what the cell found, whole or not at all."""
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
    """A digest of everything a detector's answers depend on: its configuration and every weight."""
    digest = hashlib.sha256(json.dumps(detector.model.config.to_dict(), sort_keys=True).encode())
    for name, tensor in sorted(detector.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class FrameJob:
    """One image and the readers that have not seen it, for a process that loads the detector of that name itself."""

    model: str
    store: CellStore
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
) -> dict[Reader, list[Found]]:
    """What every reader finds in every image, computed only where the store lacks it.

    On a CPU several processes of one thread each do more than one process of several threads.
    """
    wanted = tuple(dict.fromkeys(readers))
    digests = [_digest(path) for path in images]
    known = {(image, reader): store.load(reader, image) for image in digests for reader in wanted}
    jobs = []
    for path, image in zip(images, digests, strict=True):
        lacking = tuple(reader for reader in wanted if known[image, reader] is None)
        if lacking:
            jobs.append(FrameJob(model, store, path, image, lacking))
    workers = min(workers, len(jobs)) if detector.device.type == "cpu" else 1
    if workers > 1:
        found = map_with_progress(_run_in_process, jobs, workers=workers, label=label)
    else:
        found = map_with_progress(lambda job: _run(job, detector), jobs, workers=1, label=label)
    for job, findings in zip(jobs, found, strict=True):
        known |= {(job.image, reader): one for reader, one in zip(job.readers, findings, strict=True)}
    return {reader: [cast(Found, known[image, reader]) for image in digests] for reader in wanted}


def _run(job: FrameJob, detector: Detector) -> list[Found]:
    found = {}
    for reader, one in _detect(detector, read_image(job.path), job.readers, job.store):
        job.store.save(reader, job.image, one)
        found[reader] = one
    return [found[reader] for reader in job.readers]


def _run_in_process(job: FrameJob) -> list[Found]:
    return _run(job, _loaded(job.model, job.store.fingerprint))


@cache
def _loaded(model: str, expected: str) -> Detector:
    torch.set_num_threads(1)
    detector = load(model)
    if fingerprint(detector) != expected:
        raise InputError(f"--model: '{model}' changed while the study ran; run it again")
    return detector


def _detect(
    detector: Detector, pixels: Pixels, readers: Sequence[Reader], store: CellStore
) -> Iterator[tuple[Reader, Found]]:
    """Each reader's findings in one frame; tokenizers of one canvas share it and its scores."""
    by_canvas: dict[object, list[Tokenizer]] = {}
    for reader in readers:
        if isinstance(reader, Tokenizer):
            by_canvas.setdefault(reader.canvas, []).append(reader)
        else:
            yield reader, reader(detector, pixels, store.max_detections, store.head)
    for tokenizers in by_canvas.values():
        canvas = fit_canvas(pixels, tokenizers[0].canvas)
        for tokenizer, tokens in zip(tokenizers, partitions(canvas, tokenizers), strict=True):
            started = time.perf_counter()
            result = detector.on_canvas(pixels, canvas, tokens, max_detections=store.max_detections, head=store.head)
            taken = 1000 * (time.perf_counter() - started)
            yield (
                tokenizer,
                Found(
                    result.boxes.astype(np.float32),
                    result.scores,
                    result.labels.astype(np.int16),
                    tokens.retained,
                    taken,
                ),
            )


def _digest(path: Path) -> str:
    """What an image is called in a cell: a digest of its file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:24]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
