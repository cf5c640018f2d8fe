"""Random fields: the grain, blotches and drifts that keep a rendered surface from looking flat."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]


def grain(rng: np.random.Generator, height: int, width: int, softness: float = 0.0) -> Field:
    """White noise (H, W) of unit deviation, optionally blurred by `softness` pixels and brought back to unit."""
    field = rng.standard_normal((height, width), dtype=np.float32)
    if softness > 0:
        field = np.asarray(cv2.GaussianBlur(field, (0, 0), softness), np.float32)
        # Blurring white noise by sigma leaves a deviation of 1 / (2 sqrt(pi) sigma).
        field *= np.float32(max(1.0, 2 * np.sqrt(np.pi) * softness))
    return field


def drift(rng: np.random.Generator, height: int, width: int, wavelength: float, octaves: int = 2) -> Field:
    """Smooth noise (H, W) of about unit deviation whose blobs are `wavelength` pixels across, plus finer octaves."""
    field = np.zeros((height, width), np.float32)
    weight, total = 1.0, 0.0
    for _ in range(octaves):
        rows = int(np.ceil(height / wavelength)) + 3
        columns = int(np.ceil(width / wavelength)) + 3
        coarse = rng.standard_normal((rows, columns), dtype=np.float32)
        fine = cv2.resize(
            coarse, (int(columns * wavelength) + 1, int(rows * wavelength) + 1), interpolation=cv2.INTER_CUBIC
        )
        field += np.float32(weight) * np.asarray(fine[:height, :width], np.float32)
        total += weight**2
        weight, wavelength = weight * 0.6, max(2.0, wavelength / 2.3)
    # Cubic interpolation between independent knots keeps about 0.7 of their deviation.
    return np.asarray(field * np.float32(1 / (0.7 * np.sqrt(total))), np.float32)
