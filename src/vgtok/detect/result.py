"""What a detector found in one image, in the caller's pixels, and the forms others want it in."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.names import COCO, COCO_IDS
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    import supervision
    from PIL import Image

SHOWN_SCORE = 0.3
"""Score from which a detection is drawn: far below it a detector lists everything it cannot rule out."""

CSV_COLUMNS = ("name", "label", "score", "x0", "y0", "x1", "y1")


@dataclass(frozen=True)
class Timings:
    """Milliseconds an image took; in a batch, its equal share of what the batch did together."""

    tokenizer: float
    encoder: float
    head: float


@dataclass(frozen=True, eq=False)
class Result:
    """Detections of one image by falling score.

    `boxes` (K, 4) float64 x0 y0 x1 y1 in the pixels of `image` (H, W, 3), `scores` (K,) float32, `labels` (K,) int64
    into `class_names`; `names` spells the labels out.
    """

    boxes: NDArray[np.float64]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    tokens: Tokens
    timings: Timings
    image: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def names(self) -> tuple[str, ...]:
        """The class name of each detection, (K,)."""
        return tuple(self.class_names[label] for label in self.labels)

    def plot(self, *, score_threshold: float = SHOWN_SCORE, tokens: bool = False) -> "Image.Image":
        """The image with detections of at least this score outlined, over its tokens where asked."""
        from vgtok.show.overlay import draw_detections

        kept = self.scores >= score_threshold
        picture = self.tokens.overlay(self.image) if tokens else self.image
        return draw_detections(picture, self.image.shape[1], self.boxes[kept], self.labels[kept], self.class_names)

    def save(self, path: str | Path) -> None:
        """Write the plot, a COCO results json or a CSV table, by the suffix of the file."""
        path = Path(path)
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(self.to_coco(path.stem)))
        elif path.suffix.lower() == ".csv":
            write_text(path, self.to_csv())
        else:
            write_bytes(path, picture_bytes(self.plot(), path))

    def to_coco(self, image_id: int | str, category_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Rows of a COCO results file.

        Categories are given in label order; without them COCO's own classes have COCO's numbers and any other classes
        count from 1.
        """
        if category_ids is None:
            category_ids = default_category_ids(self.class_names)
        return [
            {
                "image_id": image_id,
                "category_id": category_ids[label],
                "bbox": [round(value, 3) for value in (x0, y0, x1 - x0, y1 - y0)],
                "score": round(score, 6),
            }
            for (x0, y0, x1, y1), score, label in zip(
                self.boxes.tolist(), self.scores.tolist(), self.labels.tolist(), strict=True
            )
        ]

    def to_csv(self) -> str:
        """A table with a line per detection, corners in pixels."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        writer.writerows(self.csv_rows())
        return text.getvalue()

    def csv_rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, in the order of CSV_COLUMNS."""
        return [
            (csv_text(name), str(label), f"{score:.4f}", *(f"{value:.2f}" for value in box))
            for name, label, score, box in zip(self.names, self.labels, self.scores, self.boxes, strict=True)
        ]

    def to_supervision(self) -> "supervision.Detections":
        """The detections as the supervision library has them, names under `data["class_name"]`."""
        try:
            import supervision
        except ImportError:
            raise VGTokError("to_supervision: supervision is not installed; pip install supervision") from None
        return supervision.Detections(
            xyxy=self.boxes.astype(np.float32),
            confidence=self.scores,
            class_id=self.labels,
            data={"class_name": np.array(self.names, dtype=str)},
        )


def csv_text(text: str) -> str:
    """Text for a cell of a table: what a spreadsheet would take for a formula is marked as text by an apostrophe."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def default_category_ids(class_names: tuple[str, ...]) -> Sequence[int]:
    """The number of each class in COCO files: COCO's own where they are its classes, else from 1 in label order."""
    return COCO_IDS if class_names == COCO else range(1, len(class_names) + 1)


def picture_bytes(picture: "Image.Image", path: Path) -> bytes:
    """A picture encoded in the format a file's suffix names."""
    from PIL import Image

    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None or kind not in Image.SAVE:
        raise InputError(f"{path}: '{path.suffix}' is not a picture format; use .png, .jpg, .json or .csv")
    buffer = io.BytesIO()
    picture.save(buffer, kind, **({"quality": 92} if kind == "JPEG" else {}))
    return buffer.getvalue()
