"""The camera: haze, exposure, vignetting, lens blur and sensor noise turn a clean picture into a frame."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .geometry import ByteArray
from .noise import grain


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
