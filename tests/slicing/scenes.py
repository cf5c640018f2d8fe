"""Frames with bright squares in known places, and a detector that finds each square it is shown."""

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

Found = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


def frame_with(squares: list[tuple[int, int, int]], size: tuple[int, int] = (600, 800)) -> NDArray[np.uint8]:
    """Return a gray (H, W, 3) frame with white squares of (x, y, side)."""
    frame = np.full((*size, 3), 90, dtype=np.uint8)
    for x, y, side in squares:
        frame[y : y + side, x : x + side] = 255
    return frame


@dataclass
class SquareFinder:
    """Find white blobs of at least `least` px a side; remembers the shapes it was shown."""

    least: int = 1
    shown: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, image: NDArray[np.uint8]) -> Found:
        """Return boxes, scores and labels; larger blobs score more."""
        self.shown.append(image.shape)
        count, _, stats, _ = cv2.connectedComponentsWithStats((image[..., 0] > 180).astype(np.uint8))
        rows = [stats[i] for i in range(1, count) if min(stats[i, 2:4]) >= self.least]
        boxes = np.array([(x, y, x + w, y + h) for x, y, w, h, _ in rows], dtype=np.float64).reshape(-1, 4)
        scores = np.array([min(0.99, 0.3 + row[4] / 5000) for row in rows])
        return boxes, scores, np.zeros(len(rows), dtype=np.int64)
