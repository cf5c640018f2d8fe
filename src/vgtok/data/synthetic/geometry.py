"""Shapes in meters, the camera that projects them to pixels, and noise fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
ByteArray = NDArray[np.uint8]
Color = tuple[float, float, float]

SUBPIXEL_BITS = 4
"""Fixed-point bits OpenCV keeps of every coordinate it draws at."""


@dataclass(frozen=True)
class Camera:
    """A camera that looks straight down; perspective makes tall things lean outwards."""

    width: int
    height: int
    pixels_per_meter: float
    angle: float
    altitude: float

    @property
    def radius(self) -> float:
        """Meters from the center of the image to its corner."""
        return float(np.hypot(self.width, self.height)) / 2 / self.pixels_per_meter

    def to_pixels(self, points: ArrayLike, elevation: float = 0.0) -> FloatArray:
        """Project scene points (N, 2), `elevation` meters above ground, to pixels (N, 2)."""
        scale = self.pixels_per_meter * self.altitude / (self.altitude - elevation)
        turned = rotate(np.asarray(points, np.float64), self.angle)
        center = np.array([self.width / 2, self.height / 2])
        return np.asarray(turned * scale + center, np.float64)

    def sees(self, point: Sequence[float] | FloatArray, margin: float) -> bool:
        """Return whether a scene point is in the image enlarged by `margin` meters."""
        # Plain floats: layouts call this thousands of times, and arrays of one point are slow.
        east, south = float(point[0]), float(point[1])
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        x = abs(east * cosine - south * sine) - margin
        y = abs(east * sine + south * cosine) - margin
        return max(x * 2 / self.width, y * 2 / self.height) * self.pixels_per_meter <= 1


def rotate(points: FloatArray, angle: float) -> FloatArray:
    """Rotate points (..., 2) by `angle` radians, from x towards y."""
    cosine, sine = math.cos(angle), math.sin(angle)
    x, y = points[..., 0], points[..., 1]
    turned = np.empty_like(points)
    turned[..., 0] = x * cosine - y * sine
    turned[..., 1] = x * sine + y * cosine
    return turned


def rectangle(x0: float, y0: float, x1: float, y1: float) -> FloatArray:
    """Return the corners (4, 2) of an upright rectangle."""
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)


def oriented(center: ArrayLike, length: float, width: float, heading: float) -> FloatArray:
    """Return the corners (4, 2) of a rectangle whose length runs along `heading`."""
    shape = rectangle(-length / 2, -width / 2, length / 2, width / 2)
    return rotate(shape, heading) + np.asarray(center, np.float64)


def rounded(length: float, width: float, corner: float, steps: int = 3) -> FloatArray:
    """Return a rectangle around the origin with quarter-circle corners, (4 * (steps + 1), 2)."""
    corner = min(corner, length / 2, width / 2)
    turns = np.linspace(0, np.pi / 2, steps + 1)
    arc = corner * np.stack([np.cos(turns), np.sin(turns)], 1)
    inset = np.array([length / 2 - corner, width / 2 - corner])
    signs = ((1, 1), (-1, 1), (-1, -1), (1, -1))
    return np.concatenate([rotate(arc, k * np.pi / 2) + inset * sign for k, sign in enumerate(signs)])


def shifted(shape: FloatArray, forward: float) -> FloatArray:
    """Return a polygon (N, 2) moved along its first axis."""
    return np.asarray(shape + np.array([forward, 0.0]), np.float64)


def disc(center: ArrayLike, radius: float, steps: int = 16) -> FloatArray:
    """Return a regular polygon (steps, 2) that stands for a circle."""
    turns = np.linspace(0, 2 * np.pi, steps, endpoint=False)
    return radius * np.stack([np.cos(turns), np.sin(turns)], 1) + np.asarray(center, np.float64)


def hull(length: float, width: float, inset: float = 0.0) -> FloatArray:
    """Return a deck plan with a pointed bow, (M, 2), `inset` meters inside its full size."""
    half_length, half_width = length / 2 - inset, width / 2 - inset
    along = np.linspace(0.45, 1.0, 8)
    bow = np.sqrt(np.clip(1 - ((along - 0.45) / 0.55) ** 1.9, 0, 1))
    right = np.stack([(2 * along - 1) * half_length, bow * half_width], 1)
    stern = np.array([[-half_length * 0.93, half_width * 0.9], [-half_length, half_width * 0.7]])
    side = np.concatenate([stern[::-1], right])
    return np.concatenate([side, side[::-1] * [1, -1]])


def convex_hull(*shapes: FloatArray) -> FloatArray:
    """Return the convex hull (M, 2) of several polygons: what a prism covers when seen or lit at an angle."""
    points = np.concatenate(shapes).astype(np.float32)
    return cv2.convexHull(points).reshape(-1, 2).astype(np.float64)


def fixed_point(points: FloatArray, scale: float = 1.0) -> NDArray[np.int32]:
    """Return pixel coordinates (N, 2) as the fixed-point integers OpenCV draws with.

    Continuous coordinates put the center of a pixel at one half, OpenCV puts it at zero, hence the shift.
    """
    limit = float(1 << 24)
    fixed = np.round((points * scale - 0.5) * (1 << SUBPIXEL_BITS))
    return np.clip(fixed, -limit, limit).astype(np.int32)


class Polyline:
    """A polyline measured by arc length and offset sideways (positive is to the right of travel)."""

    def __init__(self, points: ArrayLike) -> None:
        self.points: FloatArray = np.asarray(points, np.float64)
        steps = np.diff(self.points, axis=0)
        self._stations: FloatArray = np.concatenate([[0.0], np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))])
        tangent = np.gradient(self.points, axis=0)
        self._headings: FloatArray = np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0]))

    @property
    def length(self) -> float:
        """Meters from the first point to the last."""
        return float(self._stations[-1])

    def at(self, stations: ArrayLike, offset: ArrayLike = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return positions (K, 2) and headings (K,) at arc lengths `stations` (K,), `offset` meters to the right."""
        along = np.atleast_1d(np.asarray(stations, np.float64))
        center = np.stack([np.interp(along, self._stations, self.points[:, k]) for k in range(2)], 1)
        headings = np.interp(along, self._stations, self._headings)
        normal = np.stack([-np.sin(headings), np.cos(headings)], 1)
        return center + normal * np.broadcast_to(np.asarray(offset, np.float64), along.shape)[:, None], headings

    def ribbon(self, left: float, right: float, start: float = 0.0, stop: float | None = None) -> FloatArray:
        """Return the polygon between two side offsets, from arc length `start` to `stop`."""
        stop = self.length if stop is None else stop
        inner = self._stations[(self._stations > start) & (self._stations < stop)]
        stations = np.concatenate([[start], inner, [stop]])
        return np.concatenate([self.at(stations, left)[0], self.at(stations, right)[0][::-1]])


Field = NDArray[np.float32]


def grain(rng: np.random.Generator, height: int, width: int, softness: float = 0.0) -> Field:
    """Return white noise (H, W) of unit deviation, blurred by `softness` pixels and rescaled to unit deviation."""
    field = rng.standard_normal((height, width), dtype=np.float32)
    if softness > 0:
        field = np.asarray(cv2.GaussianBlur(field, (0, 0), softness), np.float32)
        # Blurring white noise by sigma leaves a deviation of 1 / (2 sqrt(pi) sigma).
        field *= np.float32(max(1.0, 2 * np.sqrt(np.pi) * softness))
    return field


def drift(rng: np.random.Generator, height: int, width: int, wavelength: float, octaves: int = 2) -> Field:
    """Return smooth noise (H, W) of about unit deviation with blobs of `wavelength` pixels, plus finer octaves."""
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
