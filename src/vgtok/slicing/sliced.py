"""`Sliced`, what a slicer found in one image: boxes in its pixels, the tiles that were read and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE
from vgtok.detect.result import coco_rows, supervision_detections
from vgtok.slicing.guides import Guide
from vgtok.slicing.tiles import Layout

if TYPE_CHECKING:
    import supervision
    from PIL import Image


@dataclass(frozen=True)
class Spent:
    """Milliseconds of the coarse pass, of reading the image and ordering tiles, of fine passes and of the merge.

    `megapixels` is what the detector was given in all passes.
    """

    coarse: float
    guide: float
    fine: float
    merge: float
    megapixels: float


@dataclass(frozen=True, eq=False, repr=False)
class Sliced:
    """Detections of one image, best score first, and how it was read.

    `boxes` (K, 4) float64 x0 y0 x1 y1 in the pixels of `image` (H, W, 3), `scores` (K,), `labels` (K,) into
    `class_names`. `order` (T,) lists the tiles of `layout`, the one most worth reading first; the first `read` of them
    were read. `values` holds what each guide says of every tile, (T,) by 'pixels' (16-px tokens) and 'scores' (sum of
    score by side over the objects of the coarse pass).
    """

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    layout: Layout
    order: NDArray[np.int64]
    read: int
    guide: Guide
    values: Mapping[str, NDArray[np.float64]]
    spent: Spent
    image: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        height, width = self.image.shape[:2]
        found = f"{len(self)} detection{'' if len(self) == 1 else 's'}"
        return (
            f"{found}; image {width} x {height} px, {self.read} of {len(self.layout)} tiles by {self.guide}, "
            f"{self.spent.megapixels:.2f} megapixels, {self.milliseconds:.0f} ms"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Class name of each detection, (K,)."""
        return tuple(self.class_names[label] for label in self.labels)

    @property
    def milliseconds(self) -> float:
        """Time of the whole call."""
        return self.spent.coarse + self.spent.guide + self.spent.fine + self.spent.merge

    @property
    def tiles_read(self) -> NDArray[np.int64]:
        """The numbers of the tiles that were read, in the order they were, (R,)."""
        return self.order[: self.read]

    def tiles(self) -> list[dict[str, Any]]:
        """Return a row per tile, in reading order: its box in the image, whether it was read, its place and why."""
        place = np.argsort(self.order, kind="stable")
        return [
            {
                "tile": tile,
                "box": [round(value, 2) for value in box],
                "read": bool(place[tile] < self.read),
                "place": int(place[tile]) + 1,
                **{name: round(float(values[tile]), 4) for name, values in self.values.items()},
            }
            for tile, box in enumerate(self.layout.source_boxes.tolist())
        ]

    def plot(self, *, score_threshold: float = DEFAULT_SCORE, tiles: bool = True) -> "Image.Image":
        """Draw the detections of at least this score; with `tiles`, what was read finely, numbered by its place."""
        from vgtok.show.boxes import draw_detections
        from vgtok.show.tiles import draw_tiles

        kept = self.scores >= score_threshold
        picture: Any = self.image
        if tiles:
            picture = draw_tiles(self.image, self.layout.source_boxes, self.tiles_read)
        return draw_detections(
            picture,
            self.image.shape[1],
            self.boxes[kept],
            self.labels[kept],
            self.class_names,
            scores=self.scores[kept],
        )

    def to_coco(self, image_id: int | str, category_ids: Any = None) -> list[dict[str, Any]]:
        """Return the rows of a COCO results file; `category_ids` as in `vgtok.detect.Result.to_coco`."""
        return coco_rows(self.boxes, self.scores, self.labels, self.class_names, image_id, category_ids)

    def to_supervision(self) -> "supervision.Detections":
        """Convert to `supervision.Detections`, with the names under `data["class_name"]`."""
        return supervision_detections(self.boxes, self.scores, self.labels, self.names)
