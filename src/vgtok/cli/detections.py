"""What `vgtok detect` does with every frame, of a picture file or of a video: the call, the record and the tables.

A record is plain JSON; tables are written from an iterator of records, so that no more than one is in memory.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.files import replacing
from vgtok.journal import is_number
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from PIL import Image

    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


class Output(StrEnum):
    """What is written: each picture or video annotated, with or without its tokens; one COCO file; one table."""

    picture = "picture"
    tokens = "tokens"
    coco = "coco"
    csv = "csv"


ENDINGS = {Output.picture: "detections", Output.tokens: "tokens"}
"""How the name of an annotated file ends, for the outputs that are written per input."""


PARTS = ("tokenizer", "encoder", "head")
"""What the time of a frame is made up of."""


@dataclass(frozen=True)
class Job:
    """One call of the verb: the detector, the settings that results depend on, what is wanted and where it goes."""

    detector: "Detector"
    settings: Mapping[str, Any]
    outputs: frozenset[Output]
    out: Path

    def targets(self, name: str, suffix: str) -> dict[Output, Path]:
        """The annotated files of an input, by output."""
        return {kind: self.out / f"{name}.{end}{suffix}" for kind, end in ENDINGS.items() if kind in self.outputs}

    def detect(self, pixels: NDArray[np.uint8]) -> "Result":
        """What the detector finds in (H, W, 3) RGB pixels."""
        return self.detector(
            pixels,
            budget=self.settings["budget"],
            max_detections=self.settings["max_detections"],
            score_threshold=self.settings["score_threshold"],
            head=self.settings["head"],
        )

    def draw(self, pixels: NDArray[np.uint8], objects: Iterable[Mapping[str, Any]], kind: Output) -> "Image.Image":
        """A frame annotated from its record alone; tokens are found again, the same to the last one."""
        from vgtok.show.detections_overlay import draw_detections

        # A record may come from a file that was damaged since: a label beyond the classes is not drawn.
        rows = [row for row in objects if row["label"] < len(self.detector.names)]
        boxes = np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([row["label"] for row in rows], dtype=np.int64)
        picture: Any = pixels
        if kind is Output.tokens:
            tokenizer = Tokenizer(budget=self.settings["budget"], canvas=self.detector.canvas)
            picture = tokenizer(pixels).overlay(pixels)
        return draw_detections(picture, pixels.shape[1], boxes, labels, self.detector.names)


def record(item: str, result: "Result") -> dict[str, Any]:
    """A frame's result as plain values; each object has its name, label and what a row of a COCO results file has."""
    rows = zip(result.names, result.labels.tolist(), result.to_coco(item), strict=True)
    kept = ("category_id", "bbox", "score")
    return {
        "item": item,
        "tokens": len(result.tokens),
        "retained": result.tokens.retained,
        "ms": vars(result.timings),
        "objects": [{"name": name, "label": label, **{key: row[key] for key in kept}} for name, label, row in rows],
    }


def is_record(entry: Mapping[str, Any]) -> bool:
    """Whether a line of a file holds all that is read from a record; a damaged one may lack any of it."""
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
    )


def write_coco(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a COCO results file; the image_id of a row is the record's item."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        separator = "["
        for entry in records:
            for found in entry["objects"]:
                row = {"image_id": entry["item"], **{key: found[key] for key in ("category_id", "bbox", "score")}}
                file.write(separator + json.dumps(row))
                separator = ", "
        file.write("[]" if separator == "[" else "]")


def write_csv(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a table with a line per object, corners in pixels."""
    from vgtok.detect.result import CSV_COLUMNS, csv_text

    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("image", *CSV_COLUMNS))
        for entry in records:
            for found in entry["objects"]:
                x, y, width, height = found["bbox"]
                corners = (f"{value:.2f}" for value in (x, y, x + width, y + height))
                texts = csv_text(entry["item"]), csv_text(found["name"])
                writer.writerow((*texts, found["label"], f"{found['score']:.4f}", *corners))
