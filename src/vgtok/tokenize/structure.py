"""The smaller eigenvalue of the luma's structure tensor: large where gradients point more than one way.

Three readings, each a gradient, a window and a resolution. Sums are exact (integers, or doubles holding integers), so
the only roundings are single IEEE operations and every backend agrees bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.frame import Frame
from vgtok.tokenize.pyramid import Grid, pool_bands


@dataclass(frozen=True)
class Reading:
    """How the structure tensor is read: `shrink` 2 halves the luma first, `sobel` and `window` are widths in px."""

    shrink: int
    sobel: int
    window: int

    @property
    def halo(self) -> int:
        """Full-size rows beyond a band that its values depend on, a whole number of shrunk rows."""
        return self.shrink * (self.sobel // 2 + self.window // 2)


HALF_SIZE = Reading(shrink=2, sobel=3, window=9)
"""The shipped reading: best fine cover of small objects for its cost, a quarter of the full-size one."""

FULL_SIZE = Reading(shrink=1, sobel=3, window=9)
"""The same gradient and window on the full-size luma."""

PAPER_AUROC = Reading(shrink=1, sobel=5, window=33)
"""The reading that fits the paper's AUROC table; longer windows rank clutter better but lose small objects."""


def lambda_min_cells(frame: Frame, reading: Reading = HALF_SIZE) -> Grid:
    """Largest lambda_min inside each 16-px cell, on the padded grid."""

    def map_band(rows: slice) -> NDArray[np.float32]:
        return smaller_eigenvalue(*structure_tensor(quantised_luma(frame.luma[rows], reading.shrink), reading))

    return pool_bands(frame.extent, reading.halo, map_band, reading.shrink)


def quantised_luma(luma: NDArray[np.uint16], shrink: int) -> NDArray[np.int16]:
    """Luma of (H, W) or, with `shrink` 2, the mean of each 2 x 2 block, at 10 bits: (ceil(H/2), ceil(W/2)).

    Ten bits make the widest product sum of the half-size reading fit 32 bits. An odd last row or column is doubled.
    """
    if shrink == 2:
        height, width = luma.shape
        if height % 2 or width % 2:
            luma = np.pad(luma, ((0, height % 2), (0, width % 2)), mode="edge")
        size = (luma.shape[1] // 2, luma.shape[0] // 2)
        # Area resampling by two is an exact integer mean, rounded half up.
        luma = np.asarray(cv2.resize(luma, size, interpolation=cv2.INTER_AREA), dtype=np.uint16)
    return (luma >> 6).view(np.int16)


def structure_tensor(luma: NDArray[np.int16], reading: Reading) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Windowed sums of gx gx, gy gy and gx gy over an (H, W) luma: three (H, W) arrays of exact integers.

    Outside the frame the luma repeats its edge and gradients count as nothing.
    """
    border = cv2.BORDER_REPLICATE
    gradient_x = cv2.Sobel(luma, cv2.CV_32F, 1, 0, ksize=reading.sobel, borderType=border)
    gradient_y = cv2.Sobel(luma, cv2.CV_32F, 0, 1, ksize=reading.sobel, borderType=border)
    # A 3 x 3 Sobel of 10 bits is at most 4080: its square fits a float's 24 bits, 81 of them fit an int32.
    exact = np.int32 if reading.sobel == 3 and reading.window <= 11 else np.float64
    x: NDArray[Any] = gradient_x.astype(exact)
    y: NDArray[Any] = gradient_y.astype(exact)
    window = (reading.window, reading.window)
    return (
        cv2.boxFilter(x * x, -1, window, normalize=False, borderType=cv2.BORDER_CONSTANT),
        cv2.boxFilter(y * y, -1, window, normalize=False, borderType=cv2.BORDER_CONSTANT),
        cv2.boxFilter(x * y, -1, window, normalize=False, borderType=cv2.BORDER_CONSTANT),
    )


def smaller_eigenvalue(xx: NDArray[Any], yy: NDArray[Any], xy: NDArray[Any]) -> NDArray[np.float32]:
    """Twice the smaller eigenvalue of the symmetric tensors [[xx, xy], [xy, yy]], each (H, W), never below 0."""
    trace: NDArray[np.float32] = np.add(xx, yy).astype(np.float32)
    spread = np.subtract(xx, yy).astype(np.float32)
    cross = xy.astype(np.float32)
    cross *= np.float32(2.0)
    spread *= spread
    cross *= cross
    spread += cross
    np.sqrt(spread, out=spread)
    trace -= spread
    np.maximum(trace, np.float32(0.0), out=trace)
    return trace
