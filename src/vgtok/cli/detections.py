"""The outputs of `vgtok detect`: one record per image, annotated pictures, COCO JSON and CSV."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.cli.frames import Reading, WindowLog
from vgtok.detect.result import Prepared, Result, record
from vgtok.errors import InputError, VGTokError
from vgtok.files import replacing, stamp, write_bytes
from vgtok.journal import is_number
from vgtok.slicing.frames import ArrayFrame, Frame, fit_frame, partition_frame
from vgtok.slicing.geo import write_geojson, write_geopackage
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from PIL import Image

    from vgtok.cli.loading import AnyDetector
    from vgtok.data.dataset import AnnotatedDataset
    from vgtok.slicing.stream import StreamBudget
    from vgtok.slicing.windows import Windows
    from vgtok.tokenize.tokens import Tokens


class Output(StrEnum):
    """Outputs: annotated pictures or videos, with tokens, beside the dense model; one COCO, CSV or geo file of all."""

    picture = "picture"
    tokens = "tokens"
    compare = "compare"
    coco = "coco"
    csv = "csv"
    geojson = "geojson"
    gpkg = "gpkg"


GEO_FILES = {
    Output.geojson: ("detections.geojson", write_geojson),
    Output.gpkg: ("detections.gpkg", write_geopackage),
}
"""Name of the file of each geo output and the function that writes it."""

ENDINGS = {Output.picture: "detections", Output.tokens: "tokens", Output.compare: "compare"}
"""Endings of the annotated files, for the outputs that are written per input."""

_ON_A_GPU = 4
"""Images per batch on a GPU, which one image does not fill."""

PARTS = ("tokenizer", "encoder", "head")
"""Stages a detection is timed by."""


@dataclass(frozen=True)
class Job:
    """One run of the command: the detector, the settings that results depend on, the outputs and their folder.

    `truth` is the data set whose annotated boxes are drawn too, `reading` how files are read.
    """

    detector: "AnyDetector"
    settings: Mapping[str, Any]
    outputs: frozenset[Output]
    out: Path
    truth: "AnnotatedDataset | None" = None
    reading: Reading = field(default_factory=Reading)

    def targets(self, name: str, suffix: str) -> dict[Output, Path]:
        """Return the annotated files of an input, by output."""
        return {kind: self.out / f"{name}.{end}{suffix}" for kind, end in ENDINGS.items() if kind in self.outputs}

    @property
    def batch(self) -> int:
        """Images that run together: on a GPU several, on a CPU each by itself."""
        device = getattr(self.detector, "device", None)
        return _ON_A_GPU if device is not None and device.type == "cuda" else 1

    def prepare(self, pixels: NDArray[np.uint8], stream: "StreamBudget | None") -> "Prepared":
        """Tokenize (H, W, 3) RGB pixels ahead of the network, at the budget a stream has for them if there is one."""
        budget = self.settings["budget"] if stream is None else stream.share(pixels)
        fitted = self.reading.fitted(self.detector.canvas)
        return self.detector.prepare(pixels, tokenizer=self.detector.tokenizer(budget, fitted))

    def stream(self, earlier: Iterable[Mapping[str, Any]]) -> "StreamBudget | None":
        """Return the budget of a stream that begins with the records of `earlier`; None if each image has its own."""
        if self.settings.get("budget_over") != "stream":
            return None
        from vgtok.slicing.stream import StreamBudget

        stream = StreamBudget(self.settings["budget"], tokenizer=self.detector.tokenizer(self.settings["budget"]))
        for entry in earlier:
            stream.book(entry["retained"])
        return stream

    def detect(
        self,
        frame: Frame,
        *,
        budget: float | None = None,
        score_threshold: float | None = None,
        finished: WindowLog | None = None,
    ) -> "Result":
        """Run the detector on a frame; budget and threshold replace those of the settings.

        `finished` holds the windows of the frame that an earlier run finished.
        """
        windows = self.windows(frame)
        choices = self._choices(score_threshold)
        choices["budget"] = self.settings["budget"] if budget is None else budget
        canvas = self.reading.fitted(self.detector.canvas) if windows is None else windows
        on_frame = getattr(self.detector, "on_frame", None)
        if on_frame is None:
            if self.reading.canvas is not None:
                raise InputError("--canvas: this model reads images of one size only; leave the option out")
            return self.detector(frame.read(0, 0, frame.height, frame.width)[0], **choices)
        if windows is None and isinstance(frame, ArrayFrame):
            read: Callable[..., Result] = self.detector
            return read(frame.pixels, canvas=canvas, **choices)
        result: Result = on_frame(frame, canvas=canvas, finished=finished, **choices)
        return result

    def windows(self, frame: Frame) -> "Windows | None":
        """Return the windows a frame is read by; None if it is fitted to a canvas, as for models of one size."""
        if getattr(self.detector, "on_frame", None) is None:
            return None
        return self.reading.windows(frame, self.detector.canvas)

    def _partition(self, frame: Frame, reader: Tokenizer) -> "Tokens":
        """Return the tokens the detector reads a frame by."""
        if getattr(self.detector, "on_frame", None) is None:
            pixels = frame.read(0, 0, frame.height, frame.width)[0]
            return reader.partition(self.detector.fit(pixels, reader.canvas))
        whole = self.windows(frame) is None
        return (fit_frame(frame, reader)[1] if whole else partition_frame(frame, reader)).tokens

    def detect_all(
        self, images: "Sequence[Prepared]", score_threshold: float | None = None
    ) -> "list[Result | Exception]":
        """Run prepared images as one batch, or one by one if that fails; what cannot be run gives its error."""
        run: Callable[..., Any] = self.detector
        choices = self._choices(score_threshold)
        if len(images) > 1:
            with suppress(VGTokError, RuntimeError, MemoryError):
                return list(run(list(images), **choices))
        found: list[Result | Exception] = []
        for image in images:
            # An image that exhausts memory or a kernel does not affect the next one.
            try:
                found.append(run(image, **choices))
            except (VGTokError, RuntimeError, MemoryError) as error:
                found.append(error)
        return found

    def _choices(self, score_threshold: float | None) -> dict[str, Any]:
        """Return the arguments of a call to the detector, but for the budget."""
        return {
            "max_detections": self.settings["max_detections"],
            "score_threshold": self.settings["score_threshold"] if score_threshold is None else score_threshold,
            "head": self.settings["head"],
        }

    def draw(
        self,
        frame: Frame,
        entry: Mapping[str, Any],
        kind: Output,
        tokens: "Tokens | None" = None,
        path: Path | None = None,
    ) -> "Image.Image":
        """Return the frame annotated with a record; without `tokens` they are computed again.

        `path` is the image file, whose annotated boxes are drawn if the job has them.
        """
        from vgtok.show.boxes import side_by_side

        picture: Any = frame.picture()
        if kind is Output.tokens:
            if tokens is None:
                # What was kept of an image is its own exact budget.
                streamed = self.settings.get("budget_over") == "stream"
                budget = entry["retained"] if streamed else self.settings["budget"]
                reader = self.detector.tokenizer(budget, self.reading.fitted(self.detector.canvas))
                tokens = self._partition(frame, reader)
            picture = tokens.overlay(picture)
        drawn = self._annotated(picture, frame.width, entry["objects"], path)
        if kind is not Output.compare:
            return drawn
        dense = record("", self.detect(frame, budget=1.0))
        other = self._annotated(picture, frame.width, dense["objects"], path)
        return side_by_side([other, drawn], [_caption("dense", dense), _caption("budget", entry)])

    def write_pictures(
        self, frame: Frame, entry: Mapping[str, Any], tokens: "Tokens", name: str, path: Path
    ) -> list[str]:
        """Write the annotated pictures of one image as `name`, and return their names."""
        from vgtok.detect.result import picture_bytes

        targets = self.targets(name, ".jpg")
        for kind, target in targets.items():
            write_bytes(target, picture_bytes(self.draw(frame, entry, kind, tokens, path), target))
        return [str(target) for target in targets.values()]

    def _annotated(
        self, picture: Any, source_width: int, objects: Iterable[Mapping[str, Any]], path: Path | None
    ) -> "Image.Image":
        from vgtok.show.boxes import draw_detections

        # A record may come from a damaged file: skip labels beyond the classes.
        rows = [row for row in objects if row["label"] < len(self.detector.names)]
        return draw_detections(
            picture,
            source_width,
            object_corners(rows),
            np.array([row["label"] for row in rows], dtype=np.int64),
            self.detector.names,
            scores=np.array([row["score"] for row in rows], dtype=np.float64),
            tracks=np.array([row.get("track", 0) for row in rows], dtype=np.int64),
            truth=None if self.truth is None or path is None else _annotated_boxes(self.truth, path),
        )


def weights_stamp(model: str) -> list[int]:
    """Return what changes with the weights of a model that is a file, a folder or shipped; empty for a hub name."""
    if Path(model).suffix.lower() == ".onnx":
        return stamp(Path(model))
    from vgtok.detect.loading import shipped_models

    place = shipped_models().get(model, Path(model))
    return stamp(place / "config.json" if place.is_dir() else place)


def object_corners(objects: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return the boxes of the objects of a record, (K, 4) x0 y0 x1 y1."""
    boxes = np.array([row["bbox"] for row in objects], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def _caption(name: str, entry: Mapping[str, Any]) -> str:
    found, time = len(entry["objects"]), sum(entry["ms"][part] for part in PARTS)
    return f"{name}: {entry['tokens']:,} tokens ({entry['retained']:.0%}), {found} found, {time:.0f} ms"


def _annotated_boxes(dataset: "AnnotatedDataset", path: Path) -> NDArray[np.float64]:
    """Return the scored boxes of an image, (M, 4) x0 y0 x1 y1; images are recognized by their path, then their name."""
    from vgtok.evaluate.detections import image_names

    places = {image.resolve(): index for index, image in enumerate(dataset.images)}
    index = places.get(path.resolve(), image_names(dataset).get(path.name))
    if index is None:
        raise InputError(f"{path}: not one of the {len(dataset.images)} images of --truth")
    return dataset.annotations(index).boxes


def is_record(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a file is a whole record; a damaged one may lack any field."""
    times, objects = entry.get("ms"), entry.get("objects")
    return (
        isinstance(entry.get("item"), str)
        and all(is_number(entry.get(key)) for key in ("tokens", "retained"))
        and isinstance(times, dict)
        and all(is_number(times.get(part)) for part in PARTS)
        and isinstance(objects, list)
        and all(map(_is_object, objects))
    )


def _is_object(found: Any) -> bool:
    box = found.get("bbox") if isinstance(found, dict) else None
    return (
        isinstance(box, list)
        and len(box) == 4
        and all(map(is_number, box))
        and all(is_number(found.get(key)) for key in ("category_id", "score"))
        and isinstance(found.get("name"), str)
        and type(found.get("label")) is int
        and found["label"] >= 0
        and type(found.get("track", 0)) is int
    )


def write_coco(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a COCO results file; the image_id of a row is the item of its record, track_id the identity if tracked."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        separator = "["
        for entry in records:
            for found in entry["objects"]:
                row = {"image_id": entry["item"], **{key: found[key] for key in ("category_id", "bbox", "score")}}
                if "track" in found:
                    row["track_id"] = found["track"]
                file.write(separator + json.dumps(row))
                separator = ", "
        file.write("[]" if separator == "[" else "]")


def write_csv(path: Path, records: Iterable[Mapping[str, Any]], *, tracked: bool = False) -> None:
    """Write a CSV table with a row per object, corners in px; of a run that tracks, the last column is the identity."""
    from vgtok.detect.result import CSV_COLUMNS, csv_text

    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("image", *CSV_COLUMNS, *(["track"] if tracked else [])))
        for entry in records:
            for found in entry["objects"]:
                x, y, width, height = found["bbox"]
                corners = (f"{value:.2f}" for value in (x, y, x + width, y + height))
                texts = csv_text(entry["item"]), csv_text(found["name"])
                identity = [found.get("track", "")] if tracked else []
                writer.writerow((*texts, found["label"], f"{found['score']:.4f}", *corners, *identity))
