"""Sun, shadows and the camera's sensor."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Field,
    FloatArray,
    View,
    convex_hull,
    fixed_point,
    grain,
    oriented,
    rotate,
)
from vgtok.data.synthetic.objects import Actor, Kind
from vgtok.data.synthetic.ships import hull


@dataclass(frozen=True)
class Sun:
    """Shadow direction in radians, metres of shadow per metre of height, darkness 0..1, penumbra in metres."""

    azimuth: float
    reach: float
    darkness: float
    softness: float

    def offset(self, height: float) -> FloatArray:
        """Where the shadow of a point `height` metres up falls, relative to its foot, (2,)."""
        return height * self.reach * np.array([np.cos(self.azimuth), np.sin(self.azimuth)])

    def facing(self, normal: float) -> float:
        """How squarely a wall or slope that looks in direction `normal` meets the light, -1 to 1."""
        return -float(np.cos(normal - self.azimuth))


class ShadowMap:
    """Coverage (H, W) of the ground by shadows, 0..255."""

    def __init__(self, view: View, sun: Sun) -> None:
        self._view = view
        self._sun = sun
        self.coverage: ByteArray = np.zeros((view.height, view.width), np.uint8)

    def cast_prism(self, footprint: FloatArray, height: float, bottom: float = 0.0) -> None:
        """The shadow of a footprint (N, 2) raised from `bottom` to `height`; it must be convex."""
        shape = convex_hull(footprint + self._sun.offset(bottom), footprint + self._sun.offset(height))
        pixels = [fixed_point(self._view.to_pixels(shape))]
        cv2.fillPoly(self.coverage, pixels, 255, cv2.LINE_AA, SUBPIXEL_BITS)

    def cast_actor(self, actor: Actor) -> None:
        """The shadow of an object, slimmer at the top as bodies are."""
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
        """Coverage (H, W) in 0..1 with penumbra."""
        sigma = max(0.5, self._sun.softness * self._view.pixels_per_metre)
        blurred = cv2.GaussianBlur(self.coverage, (0, 0), sigma)
        return np.asarray(blurred, np.float32) / np.float32(255)


def darken(image: ByteArray, shadow: Field, darkness: float) -> None:
    """Multiply an image (H, W, 3) in place by the light a shadow (H, W) leaves; the sky keeps it bluish."""
    for channel, share in enumerate((1.0, 0.95, 0.84)):
        light = 1 - shadow * np.float32(darkness * share)
        image[:, :, channel] = (image[:, :, channel] * light).astype(np.uint8)


@dataclass(frozen=True)
class Sensor:
    """How one frame was taken; `warmth` shifts red against blue, `noise` is in grey levels, `blur` in pixels."""

    exposure: float
    contrast: float
    warmth: float
    haze: float
    vignette: float
    blur: float
    noise: float
    saturation: float


def draw_sensor(rng: np.random.Generator) -> Sensor:
    """A camera setting within what drones deliver by day."""
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
    """The frame (H, W, 3) a sensor makes of a clean picture (H, W, 3)."""
    height, width = image.shape[:2]
    luma = np.tile(np.array([0.299, 0.587, 0.114]), (3, 1))
    mixing = sensor.saturation * np.eye(3) + (1 - sensor.saturation) * luma
    muted = cv2.transform(image, mixing.astype(np.float32))
    soft = np.asarray(cv2.GaussianBlur(muted, (0, 0), sensor.blur), np.uint8)
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, width, dtype=np.float32)[None]
    falloff = 1 - np.float32(sensor.vignette * 0.5) * (x * x + y * y)
    # Most sensor noise is common to the channels once the colours have been interpolated.
    shared = grain(rng, height, width, 0.5)
    frame = np.empty_like(soft)
    gains = (1 + sensor.warmth, 1.0, 1 - sensor.warmth)
    for channel, (gain, veil) in enumerate(zip(gains, (0.74, 0.77, 0.80), strict=True)):
        levels = np.arange(256, dtype=np.float32) / 255
        tone = np.clip((levels * sensor.exposure * gain - 0.42) * sensor.contrast + 0.42, 0, 1)
        curve = (255 * (tone * (1 - sensor.haze) + veil * sensor.haze)).astype(np.float32)
        value = np.take(curve, soft[:, :, channel]) * falloff
        own = rng.standard_normal((height, width), dtype=np.float32)
        value += np.float32(sensor.noise * 0.8) * shared + np.float32(sensor.noise * 0.45) * own
        frame[:, :, channel] = np.clip(value + 0.5, 0, 255).astype(np.uint8)
    return frame
