"""What can be detected: the eleven classes, one placed object (`Actor`), and the brush that paints it.

An actor is painted from prisms: polygons at two heights, projected with the view's perspective and drawn at four
times the frame's resolution, so that a person of five pixels still has exact coverage at every pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Colour,
    FloatArray,
    View,
    convex_hull,
    fixed_point,
    oriented,
    rotate,
)
from vgtok.names import VISDRONE as VISDRONE_NAMES

NAMES = (*VISDRONE_NAMES, "ship")
"""Class names: the ten of VisDrone in its order, then ship."""

_SUPERSAMPLING = 4


class Kind(IntEnum):
    """Index of a class in `NAMES`."""

    PEDESTRIAN = 0
    PEOPLE = 1
    BICYCLE = 2
    CAR = 3
    VAN = 4
    TRUCK = 5
    TRICYCLE = 6
    AWNING_TRICYCLE = 7
    BUS = 8
    MOTOR = 9
    SHIP = 10


class Extent(NamedTuple):
    """The largest length, width and height of a class in metres, and how much smaller it may be drawn."""

    length: float
    width: float
    height: float
    spread: float


EXTENTS: dict[Kind, Extent] = {
    Kind.PEDESTRIAN: Extent(0.8, 0.56, 1.8, 0.12),
    Kind.PEOPLE: Extent(0.95, 0.6, 1.3, 0.12),
    Kind.BICYCLE: Extent(1.8, 0.62, 1.7, 0.06),
    Kind.CAR: Extent(4.95, 1.92, 1.6, 0.14),
    Kind.VAN: Extent(5.6, 2.05, 2.2, 0.10),
    Kind.TRUCK: Extent(11.5, 2.55, 3.6, 0.38),
    Kind.TRICYCLE: Extent(2.8, 1.15, 1.5, 0.10),
    Kind.AWNING_TRICYCLE: Extent(2.9, 1.25, 1.9, 0.10),
    Kind.BUS: Extent(12.2, 2.6, 3.2, 0.12),
    Kind.MOTOR: Extent(2.0, 0.8, 1.65, 0.08),
    Kind.SHIP: Extent(60.0, 10.0, 7.0, 0.2),
}


@dataclass(frozen=True)
class Actor:
    """One object on its place: metres, radians, paint; `variant` picks the details of its body."""

    kind: Kind
    x: float
    y: float
    heading: float
    length: float
    width: float
    height: float
    colour: Colour
    variant: int

    @property
    def footprint(self) -> FloatArray:
        """Its corners (4, 2) on the ground."""
        return oriented((self.x, self.y), self.length, self.width, self.heading)


@dataclass(frozen=True)
class Sprite:
    """Premultiplied colour (h, w, 3) in 0..255 and coverage (h, w) in 0..1, at a place in the frame."""

    left: int
    top: int
    colour: NDArray[np.float32]
    coverage: NDArray[np.float32]

    def clipped(self, width: int, height: int) -> Sprite | None:
        """The part inside a frame, or None if there is none."""
        x0, y0 = max(0, -self.left), max(0, -self.top)
        x1 = min(self.coverage.shape[1], width - self.left)
        y1 = min(self.coverage.shape[0], height - self.top)
        if x1 <= x0 or y1 <= y0:
            return None
        return Sprite(self.left + x0, self.top + y0, self.colour[y0:y1, x0:x1], self.coverage[y0:y1, x0:x1])

    def blend_into(self, image: ByteArray) -> None:
        """Lay the sprite over an image (H, W, 3); it must be clipped to it."""
        rows, columns = self.coverage.shape
        area = image[self.top : self.top + rows, self.left : self.left + columns]
        area[:] = np.clip(area * (1 - self.coverage[..., None]) + self.colour + 0.5, 0, 255)


class Brush:
    """Paints one actor in its own axes: u forward, v to the right, z up, all in metres."""

    def __init__(self, actor: Actor, view: View) -> None:
        self._view = view
        self._place = np.array([actor.x, actor.y])
        self._heading = actor.heading
        reach = oriented((actor.x, actor.y), actor.length + 0.5, actor.width + 0.5, actor.heading)
        corners = np.concatenate([view.to_pixels(reach), view.to_pixels(reach, actor.height)])
        low = np.floor(corners.min(0)).astype(int) - 1
        high = np.ceil(corners.max(0)).astype(int) + 1
        self._origin = low.astype(np.float64)
        columns, rows = (high - low) * _SUPERSAMPLING
        self._size = (int(high[0] - low[0]), int(high[1] - low[1]))
        self._colour: ByteArray = np.zeros((rows, columns, 3), np.uint8)
        self._mask: ByteArray = np.zeros((rows, columns), np.uint8)

    def _project(self, shape: FloatArray, elevation: float) -> FloatArray:
        pixels = self._view.to_pixels(rotate(shape, self._heading) + self._place, elevation)
        return np.asarray((pixels - self._origin) * _SUPERSAMPLING, np.float64)

    def _fill(self, pixels: FloatArray, colour: Colour) -> None:
        fixed = [fixed_point(pixels)]
        paint = tuple(min(255.0, max(0.0, part)) for part in colour)
        cv2.fillPoly(self._colour, fixed, paint, cv2.LINE_8, SUBPIXEL_BITS)
        cv2.fillPoly(self._mask, fixed, 255, cv2.LINE_8, SUBPIXEL_BITS)

    def face(self, shape: FloatArray, elevation: float, colour: Colour) -> None:
        """A level polygon (N, 2)."""
        self._fill(self._project(shape, elevation), colour)

    def loft(self, low_shape: FloatArray, low: float, high_shape: FloatArray, high: float, colour: Colour) -> None:
        """The sides between two level polygons."""
        self._fill(convex_hull(self._project(low_shape, low), self._project(high_shape, high)), colour)

    def prism(self, shape: FloatArray, low: float, high: float, top: Colour, side: Colour | None = None) -> None:
        """A polygon raised from `low` to `high`, sides darker than its top unless told."""
        self.loft(shape, low, shape, high, dim(top, 0.55) if side is None else side)
        self.face(shape, high, top)

    def sprite(self) -> Sprite:
        """What was painted, at the frame's resolution."""
        colour = cv2.resize(self._colour, self._size, interpolation=cv2.INTER_AREA)
        mask = cv2.resize(self._mask, self._size, interpolation=cv2.INTER_AREA)
        coverage = np.asarray(mask, np.float32) / np.float32(255)
        left, top = int(self._origin[0]), int(self._origin[1])
        return Sprite(left, top, np.asarray(colour, np.float32), coverage)


def dim(colour: Colour, factor: float) -> Colour:
    """A darker (below one) or brighter (above one) paint."""
    red, green, blue = (min(255.0, part * factor) for part in colour)
    return red, green, blue


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`share` of the second paint in the first."""
    red, green, blue = (a * (1 - share) + b * share for a, b in zip(first, second, strict=True))
    return red, green, blue
