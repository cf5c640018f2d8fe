"""The looks at one image, coarse and fine: what a detector answered in each, together in pixels of the image."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vgtok.slicing.answers import Answer
from vgtok.slicing.merge import SAME_OBJECT, Merged, Method, cut_by_tile, merge_boxes
from vgtok.slicing.tiles import Layout


class Looks:
    """Gather `answers` look by look, in pixels of the image whose tiles `layout` describes; the coarse look first."""

    def __init__(self, layout: Layout, merge: Method = "nms", iou_threshold: float = SAME_OBJECT) -> None:
        self.layout, self.merge, self.iou_threshold = layout, merge, iou_threshold
        self.answers: list[Answer] = []
        self._cut: list[NDArray[np.bool_]] = []
        self._seen_whole = False

    def add_coarse(self, answer: Answer, size: tuple[int, int]) -> None:
        """Add the answer to the whole image at (height, width) px."""
        scale = np.array([self.layout.source_width / size[1], self.layout.source_height / size[0]] * 2)
        self._add(answer.moved(answer.boxes * scale), np.zeros(len(answer.scores), dtype=np.bool_))
        self._seen_whole = True

    def add_fine(self, answer: Answer, tile: int) -> None:
        """Add the answer to a tile, in pixels of the tile.

        Of boxes that a border inside the frame cuts, the coarse look has seen the object whole, so they are dropped.
        Without one they stay and give way to whole boxes of other tiles.
        """
        layout = self.layout
        corner = layout.boxes[tile, [0, 1, 0, 1]]
        cut = cut_by_tile(answer.boxes + corner, tuple(layout.boxes[tile].tolist()), (layout.height, layout.width))
        if self._seen_whole:
            answer, cut = answer.take(~cut), cut[~cut]
        self._add(answer.moved(layout.to_source(answer.boxes + corner)), cut)

    def merged(self) -> Merged:
        """Return the boxes of all looks without doubles."""
        source = np.repeat(np.arange(len(self.answers)), [len(one.scores) for one in self.answers])
        boxes = np.concatenate([one.boxes for one in self.answers])
        scores = np.concatenate([one.scores for one in self.answers])
        labels = np.concatenate([one.labels for one in self.answers])
        cut = np.concatenate(self._cut)
        return merge_boxes(boxes, scores, labels, source, cut, method=self.merge, iou_threshold=self.iou_threshold)

    def class_names(self, given: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the classes: those given, those the detector told, or numbers."""
        known = {label: name for one in self.answers for label, name in one.names.items()}
        known |= dict(enumerate(given or ()))
        labels = [int(one.labels.max(initial=-1)) for one in self.answers]
        return tuple(known.get(label, f"class {label}") for label in range(max([*known, *labels], default=-1) + 1))

    def _add(self, answer: Answer, cut: NDArray[np.bool_]) -> None:
        self.answers.append(answer)
        self._cut.append(cut)
