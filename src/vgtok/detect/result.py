"""`Result`, the detections of one image in its own coordinates, with conversions to COCO, CSV, pandas, supervision."""

import base64
import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE
from vgtok.errors import InputError, VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.names import COCO, COCO_IDS
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    import pandas
    import supervision
    from PIL import Image

CSV_COLUMNS = ("name", "label", "score", "x0", "y0", "x1", "y1")


@dataclass(frozen=True)
class Timings:
    """Milliseconds per image; in a batch, the time of the batch divided by its images."""

    tokenizer: float
    encoder: float
    head: float


@dataclass(frozen=True, eq=False)
class Prepared:
    """An image ready for the network: (H, W, 3) RGB `pixels`, their `canvas` and its `tokens`.

    `seconds` is the time that fitting and tokenizing took.
    """

    pixels: NDArray[np.uint8]
    canvas: Canvas
    tokens: Tokens
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Detections of one image, sorted by score, best first.

    `boxes` (K, 4) float64 x0 y0 x1 y1 in the pixels of `image` (H, W, 3), `scores` (K,) float32, `labels` (K,) int64
    into `class_names`; `names` spells the labels out. If the image was read by windows, `windows` is how many were read
    and how many there are; `image` may then be a reduced picture of a frame too large for memory.
    """

    boxes: NDArray[np.float64]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    tokens: Tokens
    timings: Timings
    image: NDArray[np.uint8]
    windows: tuple[int, int] | None = None

    @classmethod
    def from_canvas(
        cls,
        detections: Sequence[NDArray[Any]],
        canvas: Canvas,
        *,
        score_threshold: float,
        class_names: tuple[str, ...],
        tokens: Tokens,
        timings: Timings,
        image: NDArray[np.uint8],
    ) -> "Result":
        """Place (K, 4) corner boxes on the canvas, (K,) scores and (K,) labels in the image the canvas was made of.

        Detections below the score threshold are dropped.
        """
        boxes, scores, labels = detections
        placed = canvas.to_source(boxes)
        # A box that lies in the padding alone has no area left after clipping.
        kept = (scores >= score_threshold) & (placed[:, 2] > placed[:, 0]) & (placed[:, 3] > placed[:, 1])
        return cls(placed[kept], scores[kept], labels[kept].astype(np.int64), class_names, tokens, timings, image)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in Counter(self.names).most_common())
        found = f"{len(self)} detection{'' if len(self) == 1 else 's'}"
        scores = f" of score {self.scores.min():.2f} to {self.scores.max():.2f}: {counts}" if len(self) else ""
        height, width = self.tokens.source_height, self.tokens.source_width
        read = f"{len(self.tokens):,} of {self.tokens.dense:,} tokens ({self.tokens.retained:.0%})"
        parts = "" if self.windows is None else f" in {self.windows[0]} of {self.windows[1]} windows"
        took = f"{sum(vars(self.timings).values()):.0f} ms"
        return f"{found}{scores}; image {width} x {height} px, {read}{parts}, {took}"

    def _repr_html_(self) -> str:
        """Return the summary and the picture, which notebooks show."""
        buffer = io.BytesIO()
        self.plot(score_threshold=0.0).save(buffer, "JPEG", quality=90)
        data = base64.b64encode(buffer.getvalue()).decode()
        style = "max-width: 100%; height: auto"
        return f"<p>{escape(repr(self))}</p><img style='{style}' alt='' src='data:image/jpeg;base64,{data}'>"

    @property
    def names(self) -> tuple[str, ...]:
        """Class name of each detection, (K,)."""
        return tuple(self.class_names[label] for label in self.labels)

    def plot(self, *, score_threshold: float = DEFAULT_SCORE, tokens: bool = False) -> "Image.Image":
        """Draw the detections of at least this score on the image; with `tokens`, over its tokens."""
        from vgtok.show.boxes import draw_detections

        kept = self.scores >= score_threshold
        picture = self.tokens.overlay(self.image) if tokens else self.image
        found = (self.boxes[kept], self.labels[kept], self.class_names)
        return draw_detections(picture, self.tokens.source_width, *found, scores=self.scores[kept])

    def save(self, path: str | Path) -> None:
        """Write a COCO results file (.json), a table (.csv) or the plot (any picture format), by the suffix."""
        path = Path(path)
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(self.to_coco(path.stem)))
        elif path.suffix.lower() == ".csv":
            write_text(path, self.to_csv())
        else:
            write_bytes(path, picture_bytes(self.plot(), path))

    def to_coco(self, image_id: int | str, category_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a COCO results file.

        `category_ids` are given in label order. By default COCO's own classes have COCO's ids, and any other classes
        are numbered from 1.
        """
        return coco_rows(self.boxes, self.scores, self.labels, self.class_names, image_id, category_ids)

    def to_csv(self) -> str:
        """Return a CSV table with one line per detection, corners in pixels."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        writer.writerows(self.csv_rows())
        return text.getvalue()

    def csv_rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, in the order of CSV_COLUMNS."""
        return [
            (csv_text(name), str(label), f"{score:.4f}", *(f"{value:.2f}" for value in box))
            for name, label, score, box in zip(self.names, self.labels, self.scores, self.boxes, strict=True)
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a table with a row per detection and the columns of `to_csv`."""
        try:
            import pandas
        except ImportError:
            raise VGTokError("to_pandas: pandas is not installed; pip install pandas") from None
        values = (np.array(self.names, dtype=object), self.labels, self.scores, *self.boxes.T)
        return pandas.DataFrame(dict(zip(CSV_COLUMNS, values, strict=True)))

    def to_supervision(self) -> "supervision.Detections":
        """Convert to `supervision.Detections`, with the names under `data["class_name"]`."""
        return supervision_detections(self.boxes, self.scores, self.labels, self.names)


def coco_rows(
    boxes: NDArray[np.float64],
    scores: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    class_names: tuple[str, ...],
    image_id: int | str,
    category_ids: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of a COCO results file for (K, 4) corner boxes, (K,) scores and labels of one image."""
    if category_ids is None:
        category_ids = default_category_ids(class_names)
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[label],
            "bbox": [round(value, 3) for value in (x0, y0, x1 - x0, y1 - y0)],
            "score": round(score, 6),
        }
        for (x0, y0, x1, y1), score, label in zip(boxes.tolist(), scores.tolist(), labels.tolist(), strict=True)
    ]


def supervision_detections(
    boxes: NDArray[np.float64], scores: NDArray[np.floating[Any]], labels: NDArray[np.int64], names: Sequence[str]
) -> "supervision.Detections":
    """Return (K, 4) corner boxes, (K,) scores, labels and names as `supervision.Detections`."""
    try:
        import supervision
    except ImportError:
        raise VGTokError("to_supervision: supervision is not installed; pip install supervision") from None
    return supervision.Detections(
        xyxy=boxes.astype(np.float32),
        confidence=scores.astype(np.float32),
        class_id=labels,
        data={"class_name": np.array(names, dtype=str)},
    )


def record(item: str, result: Result) -> dict[str, Any]:
    """Return a result as plain values; each object has its name, its label and the fields of a COCO results row."""
    rows = zip(result.names, result.labels.tolist(), result.to_coco(item), strict=True)
    kept = ("category_id", "bbox", "score")
    read = (
        f"{result.tokens.width} x {result.tokens.height}"
        if result.windows is None
        else f"{result.windows[0]} of {result.windows[1]} windows"
    )
    return {
        "item": item,
        "canvas": read,
        "tokens": len(result.tokens),
        "retained": result.tokens.retained,
        "ms": vars(result.timings),
        "objects": [{"name": name, "label": label, **{key: row[key] for key in kept}} for name, label, row in rows],
    }


def listed_images(images: Any, max_detections: int) -> list[Any]:
    """Return the image, or the list of images, of a call to a detector as a list; check the call's cap."""
    if max_detections < 1:
        raise InputError(f"max_detections: {max_detections} is not a number of detections, 1 or more")
    return list(images) if isinstance(images, list | tuple) else [images]


def csv_text(text: str) -> str:
    """Return text for a CSV cell; an apostrophe marks what a spreadsheet would read as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def default_category_ids(class_names: tuple[str, ...]) -> Sequence[int]:
    """Return the category id of each class: COCO's own for COCO's classes, else from 1 in label order."""
    return COCO_IDS if class_names == COCO else range(1, len(class_names) + 1)


def picture_bytes(picture: "Image.Image", path: Path) -> bytes:
    """Encode a picture in the format of the path's suffix."""
    from PIL import Image

    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None or kind not in Image.SAVE:
        raise InputError(f"{path}: '{path.suffix}' is not a picture format; use .png, .jpg, .json or .csv")
    buffer = io.BytesIO()
    picture.save(buffer, kind, **({"quality": 92} if kind == "JPEG" else {}))
    return buffer.getvalue()
