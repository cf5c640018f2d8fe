"""The eleven classes, one placed object (`Actor`) with the brush that paints it, and light: sun, shadows, sensor.

An actor is painted from prisms: polygons at two heights, projected with the camera's perspective and drawn at four
times the image's resolution, so that a person of five pixels still has exact coverage at every pixel.
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
    Camera,
    Color,
    Field,
    FloatArray,
    convex_hull,
    fixed_point,
    grain,
    hull,
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


class BodySize(NamedTuple):
    """The largest length, width and height of a class in meters, and how much smaller it may be drawn."""

    length: float
    width: float
    height: float
    spread: float


BODY_SIZES: dict[Kind, BodySize] = {
    Kind.PEDESTRIAN: BodySize(0.8, 0.56, 1.8, 0.12),
    Kind.PEOPLE: BodySize(0.95, 0.6, 1.3, 0.12),
    Kind.BICYCLE: BodySize(1.8, 0.62, 1.7, 0.06),
    Kind.CAR: BodySize(4.95, 1.92, 1.6, 0.14),
    Kind.VAN: BodySize(5.6, 2.05, 2.2, 0.10),
    Kind.TRUCK: BodySize(11.5, 2.55, 3.6, 0.38),
    Kind.TRICYCLE: BodySize(2.8, 1.15, 1.5, 0.10),
    Kind.AWNING_TRICYCLE: BodySize(2.9, 1.25, 1.9, 0.10),
    Kind.BUS: BodySize(12.2, 2.6, 3.2, 0.12),
    Kind.MOTOR: BodySize(2.0, 0.8, 1.65, 0.08),
    Kind.SHIP: BodySize(60.0, 10.0, 7.0, 0.2),
}


@dataclass(frozen=True)
class Actor:
    """One placed object in meters and radians; `variant` selects the details of its body."""

    kind: Kind
    x: float
    y: float
    heading: float
    length: float
    width: float
    height: float
    color: Color
    variant: int

    @property
    def footprint(self) -> FloatArray:
        """Corners (4, 2) on the ground."""
        return oriented((self.x, self.y), self.length, self.width, self.heading)


@dataclass(frozen=True)
class Sprite:
    """Premultiplied color (h, w, 3) in 0..255 and coverage (h, w) in 0..1, at a place in the image."""

    left: int
    top: int
    color: NDArray[np.float32]
    coverage: NDArray[np.float32]

    def clipped(self, width: int, height: int) -> Sprite | None:
        """Return the part inside an image, or None if there is none."""
        x0, y0 = max(0, -self.left), max(0, -self.top)
        x1 = min(self.coverage.shape[1], width - self.left)
        y1 = min(self.coverage.shape[0], height - self.top)
        if x1 <= x0 or y1 <= y0:
            return None
        return Sprite(self.left + x0, self.top + y0, self.color[y0:y1, x0:x1], self.coverage[y0:y1, x0:x1])

    def blend_into(self, image: ByteArray) -> None:
        """Draw the sprite over an image (H, W, 3); it must be clipped to it."""
        rows, columns = self.coverage.shape
        area = image[self.top : self.top + rows, self.left : self.left + columns]
        area[:] = np.clip(area * (1 - self.coverage[..., None]) + self.color + 0.5, 0, 255)


class Brush:
    """Paints one actor in its own axes: u forward, v to the right, z up, all in meters."""

    def __init__(self, actor: Actor, camera: Camera) -> None:
        self._camera = camera
        self._place = np.array([actor.x, actor.y])
        self._heading = actor.heading
        reach = oriented((actor.x, actor.y), actor.length + 0.5, actor.width + 0.5, actor.heading)
        corners = np.concatenate([camera.to_pixels(reach), camera.to_pixels(reach, actor.height)])
        low = np.floor(corners.min(0)).astype(int) - 1
        high = np.ceil(corners.max(0)).astype(int) + 1
        self._origin = low.astype(np.float64)
        columns, rows = (high - low) * _SUPERSAMPLING
        self._size = (int(high[0] - low[0]), int(high[1] - low[1]))
        self._color: ByteArray = np.zeros((rows, columns, 3), np.uint8)
        self._mask: ByteArray = np.zeros((rows, columns), np.uint8)

    def _project(self, shape: FloatArray, elevation: float) -> FloatArray:
        pixels = self._camera.to_pixels(rotate(shape, self._heading) + self._place, elevation)
        return np.asarray((pixels - self._origin) * _SUPERSAMPLING, np.float64)

    def _fill(self, pixels: FloatArray, color: Color) -> None:
        fixed = [fixed_point(pixels)]
        paint = tuple(min(255.0, max(0.0, part)) for part in color)
        cv2.fillPoly(self._color, fixed, paint, cv2.LINE_8, SUBPIXEL_BITS)
        cv2.fillPoly(self._mask, fixed, 255, cv2.LINE_8, SUBPIXEL_BITS)

    def face(self, shape: FloatArray, elevation: float, color: Color) -> None:
        """Draw a level polygon (N, 2)."""
        self._fill(self._project(shape, elevation), color)

    def loft(self, low_shape: FloatArray, low: float, high_shape: FloatArray, high: float, color: Color) -> None:
        """Draw the sides between two level polygons."""
        self._fill(convex_hull(self._project(low_shape, low), self._project(high_shape, high)), color)

    def prism(self, shape: FloatArray, low: float, high: float, top: Color, side: Color | None = None) -> None:
        """Draw a polygon raised from `low` to `high`; by default its sides are darker than its top."""
        self.loft(shape, low, shape, high, dim(top, 0.55) if side is None else side)
        self.face(shape, high, top)

    def sprite(self) -> Sprite:
        """Return what was painted, at the resolution of the image."""
        color = cv2.resize(self._color, self._size, interpolation=cv2.INTER_AREA)
        mask = cv2.resize(self._mask, self._size, interpolation=cv2.INTER_AREA)
        coverage = np.asarray(mask, np.float32) / np.float32(255)
        left, top = int(self._origin[0]), int(self._origin[1])
        return Sprite(left, top, np.asarray(color, np.float32), coverage)


def dim(color: Color, factor: float) -> Color:
    """Return a darker (below one) or brighter (above one) color."""
    red, green, blue = (min(255.0, part * factor) for part in color)
    return red, green, blue


def mix(first: Color, second: Color, share: float) -> Color:
    """Return the first color mixed with `share` of the second."""
    red, green, blue = (a * (1 - share) + b * share for a, b in zip(first, second, strict=True))
    return red, green, blue


@dataclass(frozen=True)
class Sun:
    """Shadow direction in radians, meters of shadow per meter of height, darkness 0..1, penumbra in meters."""

    azimuth: float
    reach: float
    darkness: float
    softness: float

    def offset(self, height: float) -> FloatArray:
        """Return where the shadow of a point `height` meters up falls, relative to its foot, (2,)."""
        return height * self.reach * np.array([np.cos(self.azimuth), np.sin(self.azimuth)])

    def facing(self, normal: float) -> float:
        """Return how directly a wall or slope that faces `normal` is lit, -1 to 1."""
        return -float(np.cos(normal - self.azimuth))


class ShadowMap:
    """Coverage (H, W) of the ground by shadows, 0..255."""

    def __init__(self, camera: Camera, sun: Sun) -> None:
        self._camera = camera
        self._sun = sun
        self.coverage: ByteArray = np.zeros((camera.height, camera.width), np.uint8)

    def cast_prism(self, footprint: FloatArray, height: float, bottom: float = 0.0) -> None:
        """Add the shadow of a convex footprint (N, 2) raised from `bottom` to `height`."""
        shape = convex_hull(footprint + self._sun.offset(bottom), footprint + self._sun.offset(height))
        pixels = [fixed_point(self._camera.to_pixels(shape))]
        cv2.fillPoly(self.coverage, pixels, 255, cv2.LINE_AA, SUBPIXEL_BITS)

    def cast_actor(self, actor: Actor) -> None:
        """Add the shadow of an object, narrower at the top."""
        if actor.kind == Kind.SHIP:
            plan = rotate(hull(actor.length, actor.width), actor.heading) + np.array([actor.x, actor.y])
            self.cast_prism(plan, min(2.5, 0.4 + actor.length * 0.035))
            house = oriented((actor.x, actor.y), actor.length * 0.3, actor.width * 0.6, actor.heading)
            self.cast_prism(house, actor.height * 0.7)
            return
        upright = actor.kind in (Kind.PEDESTRIAN, Kind.PEOPLE, Kind.BICYCLE, Kind.MOTOR)
        footprint = actor.footprint
        middle = footprint.mean(0)
        slender = middle + (footprint - middle) * (0.55 if upright else 0.8)
        if upright:
            self.cast_prism(slender, actor.height * 0.9)
        else:
            self.cast_prism(footprint, actor.height * 0.5)
            self.cast_prism(slender, actor.height)

    def softened(self) -> Field:
        """Return the coverage (H, W) in 0..1 with penumbra."""
        sigma = max(0.5, self._sun.softness * self._camera.pixels_per_meter)
        blurred = cv2.GaussianBlur(self.coverage, (0, 0), sigma)
        return np.asarray(blurred, np.float32) / np.float32(255)


def darken(image: ByteArray, shadow: Field, darkness: float) -> None:
    """Darken an image (H, W, 3) in place by a shadow (H, W); shadows keep the blue of the sky."""
    for channel, share in enumerate((1.0, 0.95, 0.84)):
        light = 1 - shadow * np.float32(darkness * share)
        image[:, :, channel] = (image[:, :, channel] * light).astype(np.uint8)


@dataclass(frozen=True)
class Sensor:
    """Camera settings of one image; `warmth` shifts red against blue, `noise` is in gray levels, `blur` in pixels."""

    exposure: float
    contrast: float
    warmth: float
    haze: float
    vignette: float
    blur: float
    noise: float
    saturation: float


def draw_sensor(rng: np.random.Generator) -> Sensor:
    """Return random settings typical of drones in daylight."""
    return Sensor(
        exposure=float(rng.uniform(0.92, 1.16)),
        contrast=float(rng.uniform(0.98, 1.14)),
        warmth=float(rng.normal(0.0, 0.025)),
        haze=float(rng.uniform(0.0, 0.09)),
        vignette=float(rng.uniform(0.03, 0.16)),
        blur=float(rng.uniform(0.45, 0.75)),
        noise=float(rng.uniform(0.8, 2.6)),
        saturation=float(rng.uniform(0.72, 0.92)),
    )


def expose(image: ByteArray, sensor: Sensor, rng: np.random.Generator) -> ByteArray:
    """Return the photo (H, W, 3) a sensor makes of a clean image (H, W, 3)."""
    height, width = image.shape[:2]
    luma = np.tile(np.array([0.299, 0.587, 0.114]), (3, 1))
    mixing = sensor.saturation * np.eye(3) + (1 - sensor.saturation) * luma
    muted = cv2.transform(image, mixing.astype(np.float32))
    soft = np.asarray(cv2.GaussianBlur(muted, (0, 0), sensor.blur), np.uint8)
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, width, dtype=np.float32)[None]
    falloff = 1 - np.float32(sensor.vignette * 0.5) * (x * x + y * y)
    # Color interpolation makes most sensor noise common to the channels.
    shared = grain(rng, height, width, 0.5)
    photo = np.empty_like(soft)
    gains = (1 + sensor.warmth, 1.0, 1 - sensor.warmth)
    for channel, (gain, veil) in enumerate(zip(gains, (0.74, 0.77, 0.80), strict=True)):
        levels = np.arange(256, dtype=np.float32) / 255
        tone = np.clip((levels * sensor.exposure * gain - 0.42) * sensor.contrast + 0.42, 0, 1)
        curve = (255 * (tone * (1 - sensor.haze) + veil * sensor.haze)).astype(np.float32)
        value = np.take(curve, soft[:, :, channel]) * falloff
        own = rng.standard_normal((height, width), dtype=np.float32)
        value += np.float32(sensor.noise * 0.8) * shared + np.float32(sensor.noise * 0.45) * own
        photo[:, :, channel] = np.clip(value + 0.5, 0, 255).astype(np.uint8)
    return photo
