"""The ground sheet: everything flat. Shapes go in as colour plus material, texture goes on in one pass at the end.

Texture is per material, not per shape, so a frame costs the same however many shapes it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import cv2
import numpy as np

from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Colour,
    FloatArray,
    Path,
    View,
    drift,
    fixed_point,
    grain,
)


class Material(IntEnum):
    """What a ground pixel is made of; it decides the texture."""

    GRASS = 0
    ASPHALT = 1
    PAVING = 2
    PAINT = 3
    SOIL = 4
    CROP = 5
    WATER = 6
    GRAVEL = 7
    COURT = 8


# Deviation, in grey levels, of (pixel grain, decimetre speckle, metre blotches, ten-metre drift) for each material.
_TEXTURE = np.array(
    [
        [7.0, 9.0, 7.0, 9.0],
        [1.9, 2.0, 2.6, 4.8],
        [1.8, 2.4, 4.0, 5.0],
        [3.0, 5.0, 9.0, 3.0],
        [4.0, 6.0, 7.0, 9.0],
        [5.0, 8.0, 6.0, 8.0],
        [1.0, 0.0, 1.5, 5.0],
        [9.0, 8.0, 5.0, 6.0],
        [1.5, 1.5, 2.5, 4.0],
    ],
    np.float32,
)
# How far blotches pull each material towards yellow (dry) or blue-green, per channel.
_TINT = np.array(
    [
        [1.15, 1.0, 0.7],
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],
        [1.1, 1.0, 0.8],
        [1.2, 1.0, 0.6],
        [0.8, 1.0, 1.0],
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],
    ],
    np.float32,
)


class Ground:
    """Colour (H, W, 3), material (H, W) and stain (H, W) maps that layouts draw on."""

    def __init__(self, view: View, colour: Colour, material: Material) -> None:
        shape = (view.height, view.width)
        self.view = view
        self.colour: ByteArray = np.empty((*shape, 3), np.uint8)
        self.colour[:] = np.round(colour).astype(np.uint8)
        self.material: ByteArray = np.full(shape, int(material), np.uint8)
        self.stain: ByteArray = np.full(shape, 128, np.uint8)

    def fill(self, shape: FloatArray, colour: Colour, material: Material) -> None:
        """Cover a polygon (N, 2) of scene points."""
        pixels = [fixed_point(self.view.to_pixels(shape))]
        cv2.fillPoly(self.colour, pixels, colour, cv2.LINE_AA, SUBPIXEL_BITS)
        cv2.fillPoly(self.material, pixels, int(material), cv2.LINE_8, SUBPIXEL_BITS)

    def fill_many(self, shapes: Sequence[FloatArray], colour: Colour, material: Material) -> None:
        """Cover several polygons with one colour."""
        for shape in shapes:
            self.fill(shape, colour, material)

    def stroke(self, points: FloatArray, width: float, colour: Colour, material: Material | None = None) -> None:
        """Draw a line `width` metres wide, never thinner than a pixel, along scene points (N, 2)."""
        thickness = max(1, round(width * self.view.pixels_per_metre))
        pixels = [fixed_point(self.view.to_pixels(points))]
        cv2.polylines(self.colour, pixels, False, colour, thickness, cv2.LINE_AA, SUBPIXEL_BITS)
        if material is not None:
            cv2.polylines(self.material, pixels, False, int(material), thickness, cv2.LINE_8, SUBPIXEL_BITS)

    def outline(self, shape: FloatArray, width: float, colour: Colour, material: Material | None = None) -> None:
        """Draw the closed border of a polygon."""
        self.stroke(np.concatenate([shape, shape[:1]]), width, colour, material)

    def soil(self, shape: FloatArray, level: float) -> None:
        """Darken (negative) or bleach (positive) a polygon by `level` grey levels, with soft edges."""
        pixels = [fixed_point(self.view.to_pixels(shape))]
        cv2.fillPoly(self.stain, pixels, 128 + level, cv2.LINE_AA, SUBPIXEL_BITS)

    def wear(self, path: Path, offset: float, width: float, level: float) -> None:
        """Wheel tracks: a soft dark or bright band along a path."""
        self.soil(path.ribbon(offset - width / 2, offset + width / 2), level)

    def textured(self, rng: np.random.Generator) -> ByteArray:
        """The finished sheet (H, W, 3)."""
        height, width = self.material.shape
        metre = self.view.pixels_per_metre
        fields = (
            grain(rng, height, width, 0.5),
            drift(rng, height, width, max(2.0, 0.35 * metre), 1),
            drift(rng, height, width, max(3.0, 2.5 * metre), 3),
            drift(rng, height, width, max(8.0, 20 * metre), 2),
        )
        stain = cv2.GaussianBlur(self.stain, (0, 0), max(0.6, 0.22 * metre))
        speckle = np.asarray(stain, np.float32) - 128
        for k in (0, 1):
            speckle += np.take(_TEXTURE[:, k], self.material) * fields[k]
        blotch = np.take(_TEXTURE[:, 2], self.material) * fields[2]
        blotch += np.take(_TEXTURE[:, 3], self.material) * fields[3]
        result = np.empty_like(self.colour)
        for channel in range(3):
            tone = speckle + blotch * np.take(_TINT[:, channel], self.material)
            # Texture is relative: dark asphalt has less of it, in grey levels, than bright concrete.
            base = self.colour[:, :, channel].astype(np.float32)
            result[:, :, channel] = np.clip(base + tone * (0.35 + base * 0.005), 0, 255).astype(np.uint8)
        return result
