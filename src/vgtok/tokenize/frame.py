"""The valid pixels of a canvas as scores read them: RGB, and BT.601 luma in 16-bit fixed point.

Luma keeps 8 fractional bits (77 R + 150 G + 29 B, at most 65280). Rounded to 8 bits, ties at the threshold cost up
to 0.7 points of retention; as integers every backend and thread count agrees bit for bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import ROOT, Extent
from vgtok.tokenize.scratch import scratch

LUMA_WEIGHTS = (77, 150, 29)

_BAND_PIXELS = 2**20
"""Pixels a band of rows holds at most: its few 16-bit buffers stay in cache, and huge frames in memory."""


@dataclass(frozen=True)
class Frame:
    """`image` is (height, width, 3) uint8 RGB: the valid part of a canvas, without padding."""

    image: NDArray[np.uint8]

    @cached_property
    def extent(self) -> Extent:
        """The valid area and its grids."""
        return Extent(self.image.shape[0], self.image.shape[1])

    @cached_property
    def luma(self) -> NDArray[np.uint16]:
        """(height, width) luma times 256."""
        total = np.empty(self.image.shape[:2], dtype=np.uint16)
        for band in bands(self.extent, halo=0):
            part = total[band.outer]
            planes = cv2.split(self.image[band.outer], [scratch(f"plane {i}", part.shape, np.uint8) for i in range(3)])
            weighted = scratch("weighted plane", part.shape, np.uint16)
            np.multiply(planes[0], LUMA_WEIGHTS[0], out=part, dtype=np.uint16)
            for plane, weight in zip(planes[1:], LUMA_WEIGHTS[1:], strict=True):
                part += np.multiply(plane, weight, out=weighted, dtype=np.uint16)
        return total


@dataclass(frozen=True)
class Band:
    """Rows of a frame processed together: `outer` includes the halo, `inner` indexes the result inside it."""

    start: int
    stop: int
    outer: slice
    inner: slice


def bands(extent: Extent, halo: int) -> Iterator[Band]:
    """Cut a frame into bands of whole 64-px roots, each with `halo` more rows where the frame has them."""
    fitting = max(1, _BAND_PIXELS // (extent.width * ROOT))
    count = -(-extent.root_rows // fitting)
    step = -(-extent.root_rows // count) * ROOT
    for start in range(0, extent.height, step):
        stop = min(start + step, extent.height)
        low, high = max(0, start - halo), min(extent.height, stop + halo)
        yield Band(start, stop, slice(low, high), slice(start - low, stop - low))
