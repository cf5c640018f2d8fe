"""Tiles of a frame: the frame at the scale of the fine passes, cut into overlapping tiles of one size.

An image enters, the resized frame and the corners of its tiles leave, and the way back to pixels of the image.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError


@dataclass(frozen=True)
class Layout:
    """The tiles of a frame of `height` x `width` px, an image of `source_height` x `source_width` px resized.

    `boxes` (T, 4) int64 x0 y0 x1 y1 are the tiles in pixels of the frame, row by row; there are `columns` in a row.
    """

    height: int
    width: int
    source_height: int
    source_width: int
    columns: int
    boxes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def rows(self) -> int:
        """Rows of tiles."""
        return len(self.boxes) // self.columns

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Pixels of each tile, (T,)."""
        x0, y0, x1, y1 = self.boxes.T
        return np.asarray((x1 - x0) * (y1 - y0))

    @property
    def source_boxes(self) -> NDArray[np.float64]:
        """The tiles in pixels of the image, (T, 4)."""
        return self.to_source(self.boxes)

    def to_source(self, boxes: NDArray[np.generic]) -> NDArray[np.float64]:
        """Map (N, 4) boxes in pixels of the frame to pixels of the image, clipped to it."""
        limits = np.array([self.width, self.height] * 2, dtype=np.float64)
        source_limits = np.array([self.source_width, self.source_height] * 2, dtype=np.float64)
        clipped = np.clip(np.asarray(boxes, dtype=np.float64).reshape(-1, 4), 0.0, limits)
        # Multiply before dividing: the far edge then lands on the far edge without a rounding error.
        return np.asarray(clipped * source_limits / limits)

    def cut(self, frame: NDArray[np.uint8], tile: int) -> NDArray[np.uint8]:
        """Return one tile of the resized frame, (h, w, 3), as a copy a callback may keep."""
        x0, y0, x1, y1 = self.boxes[tile].tolist()
        return np.ascontiguousarray(frame[y0:y1, x0:x1])


def lay_out(image_size: tuple[int, int], tile: int, overlap: int, long_side: int | None = None) -> Layout:
    """Cut an image of (height, width) px, enlarged or shrunk to a long side, into tiles of at most `tile` px a side.

    Neighbors share at least `overlap` px. All tiles have the same size: the smallest that covers the frame in as few
    rows and columns as tiles of `tile` px need.
    """
    for name, value, least in (("tile", tile, 32), ("overlap", overlap, 0)):
        if not isinstance(value, int) or value < least:
            raise InputError(f"{name}: {value!r} is not a whole number of pixels, {least} or more")
    if 2 * overlap > tile:
        raise InputError(f"overlap: {overlap} px is more than half of a tile of {tile} px")
    height, width = resized_size(image_size, long_side)
    across, down = _spans(width, tile, overlap), _spans(height, tile, overlap)
    boxes = [(x0, y0, x1, y1) for y0, y1 in down for x0, x1 in across]
    return Layout(height, width, *image_size, len(across), np.array(boxes, dtype=np.int64))


def resized_size(image_size: tuple[int, int], long_side: int | None) -> tuple[int, int]:
    """Return (height, width) of an image brought to a long side in pixels; None keeps its own."""
    if long_side is None:
        return image_size
    if not isinstance(long_side, int) or long_side < 32:
        raise InputError(f"long side: {long_side!r} is not a whole number of pixels, 32 or more")
    height, width = image_size
    scale = long_side / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def resized(image: NDArray[np.uint8], long_side: int | None) -> NDArray[np.uint8]:
    """Return an (H, W, 3) image brought to a long side in pixels."""
    height, width = resized_size(image.shape[:2], long_side)
    if (height, width) == image.shape[:2]:
        return image
    # Bilinear skips pixels when it shrinks, so average areas instead.
    method = cv2.INTER_AREA if height < image.shape[0] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (width, height), interpolation=method), dtype=np.uint8)


def _spans(length: int, tile: int, overlap: int) -> list[tuple[int, int]]:
    """Return where tiles start and end along one side."""
    count = max(1, -(-(length - overlap) // (tile - overlap)))
    size = -(-(length + (count - 1) * overlap) // count)
    starts = [round(number * (length - size) / max(count - 1, 1)) for number in range(count)]
    return [(start, start + size) for start in starts]
