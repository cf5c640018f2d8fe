"""All looks at the frames of a data set by one detector, cached on disk: one coarse look and every tile.

A finished frame survives a kill. Its file is named by its content, its folder by the detector, the layout and the code.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.evaluate.classes import label_map, parse_class_map
from vgtok.files import write_bytes
from vgtok.parallel import map_with_progress
from vgtok.slicing.answers import Answer, read_answer
from vgtok.slicing.guides import Guide, pixel_values, score_values, tile_order
from vgtok.slicing.looks import Looks
from vgtok.slicing.tiles import Layout, lay_out, resized, resized_size
from vgtok.study.cells import code_digest, fingerprint, image_digest
from vgtok.study.result import Inputs
from vgtok.tokenize.canvas import read_image

FINE, COARSE, TILE, OVERLAP = 1376, 640, 384, 32
"""Long sides of the frame and of the coarse look, and tiles: 4 x 3 of a frame of 4:3 to 16:9."""

_MOST = 300
"""Most detections of one look."""

_CODE = ("tokenize", "slicing/tiles.py", "slicing/guides.py", "slicing/onnx_yolo.py", "slicing/answers.py")
_OWN_CODE = (*_CODE, "encode", "detect")


class Reader:
    """A detector by name, a YOLO in an ONNX file or one of this library with all tokens, as a slicer's callback."""

    def __init__(self, model: str, threads: int | None = None) -> None:
        self.names: tuple[str, ...]
        if Path(model).suffix.lower() == ".onnx":
            from vgtok.slicing.onnx_yolo import YoloOnnx

            yolo = YoloOnnx(model, threads=threads)
            self.names, self._detect = yolo.names, cast(Callable[[NDArray[np.uint8]], Any], yolo)
            self.identity = hashlib.sha256(Path(model).read_bytes()).hexdigest() + code_digest(_CODE)
            return
        import torch

        from vgtok.detect.loading import load
        from vgtok.tokenize.tokenizer import Tokenizer

        if threads is not None:
            torch.set_num_threads(threads)
        detector, dense = load(model), Tokenizer(budget=1.0, rank=0.0, canvas="native")
        self.names = detector.names
        self._detect = lambda image: detector(image, tokenizer=dense, max_detections=_MOST, score_threshold=0.0)
        self.identity = fingerprint(detector) + code_digest(_OWN_CODE)

    def __call__(self, image: NDArray[np.uint8]) -> Answer:
        """Detect in (H, W, 3) RGB pixels."""
        return read_answer(self._detect(image), image.shape[:2])


def readers_of(inputs: Inputs, dataset: AnnotatedDataset) -> Iterator[tuple[str, Reader, NDArray[np.int64]]]:
    """Yield the models of a study: each with its reader and the data's label of each of its classes, -1 for none."""
    readers = {model: Reader(model) for model in inputs.models or (DEFAULT_MODEL,)}
    class_map = parse_class_map(inputs.class_map)
    for model, reader in readers.items():
        others = {name for other in readers.values() if other is not reader for name in other.names}
        # Classes that only other models of the run have are not misspelled.
        foreign = others - set(reader.names)
        own = {name: [member for member in members if member not in foreign] for name, members in class_map.items()}
        labels = label_map(reader.names, dataset.names, {name: members for name, members in own.items() if members})
        if (labels < 0).all():
            raise InputError(f"--model: '{model}' knows none of the classes of {dataset.name}; map some with --map")
        yield model, reader, labels


@dataclass(frozen=True, eq=False)
class Frame:
    """All looks at one frame: its size (height, width), answers in pixels of each look, 16-px tokens per tile (T,)."""

    size: tuple[int, int]
    coarse: Answer
    tiles: tuple[Answer, ...]
    tokens: NDArray[np.float64]

    @cached_property
    def layout(self) -> Layout:
        """The tiles."""
        return lay_out(self.size, TILE, OVERLAP, FINE)

    def order(self, guide: Guide) -> NDArray[np.int64]:
        """Return the tiles in the order of a guide."""
        values = {} if guide == "scores" else {"pixels": self.tokens}
        if guide != "pixels":
            boxes = self._first_look().answers[0].boxes
            values["scores"] = score_values(boxes, self.coarse.scores, self.layout, COARSE / max(self.size))
        return tile_order(values, guide)

    def found(self, tiles: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return boxes, scores and labels if the coarse look and these tiles are read."""
        looks = self._first_look()
        for tile in tiles:
            looks.add_fine(self.tiles[tile], tile)
        merged = looks.merged()
        return merged.boxes, merged.scores, merged.labels

    def megapixels(self, tiles: int) -> float:
        """Return what a detector is given if so many tiles are read."""
        height, width = resized_size(self.size, COARSE)
        return (height * width + int(self.layout.pixels[:tiles].sum())) / 1e6

    def _first_look(self) -> Looks:
        looks = Looks(self.layout)
        looks.add_coarse(self.coarse, resized_size(self.size, COARSE))
        return looks


@dataclass(frozen=True)
class _Job:
    """One frame to read, for a process that opens the detector itself."""

    model: str
    identity: str
    folder: Path
    path: Path


def read_frames(model: str, reader: Reader, images: Sequence[Path], out: Path, workers: int) -> list[Frame]:
    """Return the looks at every image; read only those that the cache in `out` lacks."""
    settings = json.dumps([reader.identity, FINE, COARSE, TILE, OVERLAP, _MOST])
    folder = out / "looks" / hashlib.sha256(settings.encode()).hexdigest()[:16]
    jobs = [_Job(model, reader.identity, folder, path) for path in images]
    places = [folder / f"{image_digest(path)}.npz" for path in images]
    lacking = [job for job, place in zip(jobs, places, strict=True) if _stored(place) is None]
    if workers > 1 and len(lacking) > 1:
        done = map_with_progress(_read_in_process, lacking, workers=workers, label=f"looks of {Path(model).name}")
    else:
        done = map_with_progress(lambda job: _read(job, reader), lacking, workers=1, label="looks")
    for _ in done:
        pass
    return [cast(Frame, _stored(place)) for place in places]


def _read(job: _Job, reader: Reader) -> None:
    pixels = read_image(job.path)
    layout = lay_out(pixels.shape[:2], TILE, OVERLAP, FINE)
    frame = resized(pixels, FINE)
    answers = [reader(resized(pixels, COARSE)), *(reader(layout.cut(frame, tile)) for tile in range(len(layout)))]
    more = {"tokens": pixel_values(pixels, layout), "size": np.array(pixels.shape[:2])}
    store_answers(job.folder / f"{image_digest(job.path)}.npz", answers, more)


def _read_in_process(job: _Job) -> None:
    _read(job, opened_reader(job.model, job.identity))


@cache
def opened_reader(model: str, expected: str) -> Reader:
    """Return the reader of this process, on one thread; raise InputError if it is not the expected one."""
    reader = Reader(model, threads=1)
    if reader.identity != expected:
        raise InputError(f"--model: '{model}' changed while the study ran; run it again")
    return reader


def _stored(place: Path) -> Frame | None:
    """Return the looks in a file; None if it is missing or damaged."""
    read = stored_answers(place)
    if read is None:
        return None
    answers, more = read
    try:
        height, width = more["size"].tolist()
        frame = Frame((height, width), answers[0], tuple(answers[1:]), more["tokens"])
        return frame if len(frame.tiles) == len(frame.layout) else None
    except (ValueError, KeyError, IndexError):
        return None


def store_answers(place: Path, answers: Sequence[Answer], more: Mapping[str, NDArray[Any]]) -> None:
    """Write answers and further arrays to a file, completely or not at all."""
    arrays: dict[str, Any] = {
        "boxes": np.concatenate([one.boxes for one in answers]).astype(np.float32),
        "scores": np.concatenate([one.scores for one in answers]).astype(np.float32),
        "labels": np.concatenate([one.labels for one in answers]).astype(np.int16),
        "counts": np.array([len(one.scores) for one in answers]),
        **more,
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(place, buffer.getvalue())


def stored_answers(place: Path) -> tuple[list[Answer], dict[str, NDArray[Any]]] | None:
    """Return the answers and arrays in a file; None if it is missing or damaged."""
    try:
        # Read from memory: numpy leaves the file of a damaged archive open.
        with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as arrays:
            held = dict(arrays)
        boxes, scores, labels = (held.pop(name) for name in ("boxes", "scores", "labels"))
        ends = np.cumsum(held.pop("counts"))
        if not ends[-1] == len(boxes) == len(scores) == len(labels):
            return None
        parts = zip(*(np.split(part, ends[:-1]) for part in (boxes, scores, labels)), strict=True)
        return [Answer(b.astype(np.float64), s.astype(np.float64), k.astype(np.int64)) for b, s, k in parts], held
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile, zlib.error):
        return None
