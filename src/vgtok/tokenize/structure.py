"""The smaller eigenvalue of the luma's structure tensor: large where gradients point more than one way.

A reading is a gradient, a window and a resolution. Luma is cut to 9 bits, so that products and their block sums are
integers a float holds exactly; the only roundings are single IEEE operations, and all backends agree bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import CanvasPixels, Grid, pool_bands, scratch

LUMA_BITS = 9


@dataclass(frozen=True)
class Reading:
    """How the structure tensor is read.

    `shrink` 2 halves the luma first; `sobel` and `window` are widths in its pixels; `stride` is the distance between
    windows, a divisor of `window`. Outside the image gradients are 0, or `mirrored`.
    """

    shrink: int
    sobel: int
    window: int
    stride: int
    mirrored: bool = False

    @property
    def step(self) -> int:
        """Full-size pixels between two windows."""
        return self.shrink * self.stride

    @property
    def halo(self) -> int:
        """Full-size rows around a band that its values depend on, a multiple of `step`."""
        reach = self.shrink * (self.sobel // 2 + self.window // 2)
        return -(-reach // self.step) * self.step


HALF_SIZE = Reading(shrink=2, sobel=3, window=8, stride=2)
"""The default: of the readings measured, the best fine cover of small objects, at an eighth of the full-size cost."""

FULL_SIZE = Reading(shrink=1, sobel=3, window=9, stride=1)
"""Full-size luma, a window at every pixel."""

PAPER_AUROC = Reading(shrink=1, sobel=5, window=33, stride=1, mirrored=True)
"""The reading that fits the paper's AUROC table and the count of its second figure; long windows lose small objects."""

PAPER_FUSED = Reading(shrink=1, sobel=3, window=5, stride=1)
"""The reading with which the fused score keeps the share of tokens the paper prints at its thresholds."""


def lambda_min_cells(pixels: CanvasPixels, reading: Reading = HALF_SIZE) -> Grid:
    """Return the largest lambda_min in each 16-px cell, on the padded grid."""

    def map_band(rows: slice) -> NDArray[np.float32]:
        return smaller_eigenvalue(*structure_tensor(quantized_luma(pixels.luma[rows], reading.shrink), reading))

    return pool_bands(pixels.extent, reading.halo, map_band, reading.step)


def quantized_luma(luma: NDArray[np.uint16], shrink: int) -> NDArray[np.int16]:
    """Return (H, W) luma at 9 bits, halved if `shrink` is 2."""
    return ((half_size(luma) if shrink == 2 else luma) >> (16 - LUMA_BITS)).view(np.int16)


def half_size(luma: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the mean of each 2 x 2 block of (H, W), rounded half up: (ceil(H/2), ceil(W/2)); odd edges repeat."""
    height, width = luma.shape
    if height % 2 or width % 2:
        luma = np.pad(luma, ((0, height % 2), (0, width % 2)), mode="edge")
    size = (luma.shape[1] // 2, luma.shape[0] // 2)
    # Area resampling by two is that integer mean, exactly.
    return np.asarray(cv2.resize(luma, size, interpolation=cv2.INTER_AREA), dtype=np.uint16)


def structure_tensor(luma: NDArray[np.int16], reading: Reading) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return windowed means of gx gx, gy gy and gx gy of (H, W) luma, `stride` apart, up to a factor: scratch arrays.

    Outside the image the luma repeats its edge.
    """
    height, width = luma.shape
    x, y = scratch("gradient x", luma.shape, np.float32), scratch("gradient y", luma.shape, np.float32)
    cv2.Sobel(luma, cv2.CV_32F, 1, 0, dst=x, ksize=reading.sobel, borderType=cv2.BORDER_REPLICATE)
    cv2.Sobel(luma, cv2.CV_32F, 0, 1, dst=y, ksize=reading.sobel, borderType=cv2.BORDER_REPLICATE)
    # A 3 x 3 Sobel of 9 bits is at most 2040, and four such squares fit a float's 24 bits; a 5 x 5 one needs a double.
    exact = np.float32 if reading.sobel == 3 else np.float64
    blocks = (-(-height // reading.stride), -(-width // reading.stride))
    product = scratch("gradient product", (blocks[0] * reading.stride, blocks[1] * reading.stride), exact)
    product[height:] = product[:, width:] = 0
    window = (reading.window // reading.stride, reading.window // reading.stride)
    border = cv2.BORDER_REFLECT_101 if reading.mirrored else cv2.BORDER_CONSTANT

    def windowed(name: str, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        np.multiply(first, second, out=product[:height, :width], dtype=exact)
        means = product
        if reading.stride > 1:
            # The mean of a 2 x 2 block: an exact sum of four, divided by a power of two.
            means = scratch("block means", blocks, exact)
            cv2.resize(product, blocks[::-1], dst=means, interpolation=cv2.INTER_AREA)
        sums = scratch(name, blocks, exact)
        cv2.boxFilter(means, -1, window, dst=sums, normalize=False, borderType=border)
        return sums

    return windowed("xx", x, x), windowed("yy", y, y), windowed("xy", x, y)


def smaller_eigenvalue(xx: NDArray[Any], yy: NDArray[Any], xy: NDArray[Any]) -> NDArray[np.float32]:
    """Return twice the smaller eigenvalue of the tensors [[xx, xy], [xy, yy]], at least 0: (H, W), a scratch array."""
    trace, spread, cross = (scratch(name, xx.shape, np.float32) for name in ("trace", "spread", "cross"))
    np.add(xx, yy, out=trace, casting="same_kind")
    np.subtract(xx, yy, out=spread, casting="same_kind")
    np.copyto(cross, xy, casting="same_kind")
    cross *= np.float32(2.0)
    spread *= spread
    cross *= cross
    spread += cross
    np.sqrt(spread, out=spread)
    trace -= spread
    np.maximum(trace, np.float32(0.0), out=trace)
    return trace
