"""Ground and plants. Shapes enter as color plus surface; the texture is added in one pass at the end.

Texture is per surface, not per shape, so an image costs the same however many shapes it has. Tree crowns come from a
small bank of lit pictures, resized and tinted for every plant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Camera,
    Color,
    FloatArray,
    Polyline,
    drift,
    fixed_point,
    grain,
)
from vgtok.data.synthetic.objects import ShadowMap, Sprite, Sun


class Surface(IntEnum):
    """Kind of ground, which decides the texture."""

    GRASS = 0
    ASPHALT = 1
    PAVING = 2
    PAINT = 3
    SOIL = 4
    CROP = 5
    WATER = 6
    GRAVEL = 7
    COURT = 8


# Deviation, in gray levels, of (pixel grain, decimeter speckle, meter blotches, ten-meter drift) per surface.
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
# How far blotches shift each surface towards yellow (dry) or blue-green, per channel.
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
    """Color (H, W, 3), surface (H, W) and stain (H, W) maps that layouts draw on."""

    def __init__(self, camera: Camera, color: Color, surface: Surface) -> None:
        shape = (camera.height, camera.width)
        self.camera = camera
        self.color: ByteArray = np.empty((*shape, 3), np.uint8)
        self.color[:] = np.round(color).astype(np.uint8)
        self.surface: ByteArray = np.full(shape, int(surface), np.uint8)
        self.stain: ByteArray = np.full(shape, 128, np.uint8)

    def fill(self, shape: FloatArray, color: Color, surface: Surface) -> None:
        """Fill a polygon (N, 2) of scene points."""
        pixels = [fixed_point(self.camera.to_pixels(shape))]
        cv2.fillPoly(self.color, pixels, color, cv2.LINE_AA, SUBPIXEL_BITS)
        cv2.fillPoly(self.surface, pixels, int(surface), cv2.LINE_8, SUBPIXEL_BITS)

    def fill_many(self, shapes: Sequence[FloatArray], color: Color, surface: Surface) -> None:
        """Fill several polygons with one color."""
        for shape in shapes:
            self.fill(shape, color, surface)

    def stroke(self, points: FloatArray, width: float, color: Color, surface: Surface | None = None) -> None:
        """Draw a line `width` meters wide, never thinner than a pixel, along scene points (N, 2)."""
        thickness = max(1, round(width * self.camera.pixels_per_meter))
        pixels = [fixed_point(self.camera.to_pixels(points))]
        cv2.polylines(self.color, pixels, False, color, thickness, cv2.LINE_AA, SUBPIXEL_BITS)
        if surface is not None:
            cv2.polylines(self.surface, pixels, False, int(surface), thickness, cv2.LINE_8, SUBPIXEL_BITS)

    def outline(self, shape: FloatArray, width: float, color: Color, surface: Surface | None = None) -> None:
        """Draw the closed border of a polygon."""
        self.stroke(np.concatenate([shape, shape[:1]]), width, color, surface)

    def soil(self, shape: FloatArray, level: float) -> None:
        """Darken (negative) or bleach (positive) a polygon by `level` gray levels, with soft edges."""
        pixels = [fixed_point(self.camera.to_pixels(shape))]
        cv2.fillPoly(self.stain, pixels, 128 + level, cv2.LINE_AA, SUBPIXEL_BITS)

    def wear(self, path: Polyline, offset: float, width: float, level: float) -> None:
        """Draw wheel tracks: a soft dark or bright band along a path."""
        self.soil(path.ribbon(offset - width / 2, offset + width / 2), level)

    def textured(self, rng: np.random.Generator) -> ByteArray:
        """Return the textured ground (H, W, 3)."""
        height, width = self.surface.shape
        meter = self.camera.pixels_per_meter
        fields = (
            grain(rng, height, width, 0.5),
            drift(rng, height, width, max(2.0, 0.35 * meter), 1),
            drift(rng, height, width, max(3.0, 2.5 * meter), 3),
            drift(rng, height, width, max(8.0, 20 * meter), 2),
        )
        stain = cv2.GaussianBlur(self.stain, (0, 0), max(0.6, 0.22 * meter))
        speckle = np.asarray(stain, np.float32) - 128
        for k in (0, 1):
            speckle += np.take(_TEXTURE[:, k], self.surface) * fields[k]
        blotch = np.take(_TEXTURE[:, 2], self.surface) * fields[2]
        blotch += np.take(_TEXTURE[:, 3], self.surface) * fields[3]
        result = np.empty_like(self.color)
        for channel in range(3):
            tone = speckle + blotch * np.take(_TINT[:, channel], self.surface)
            # Texture is relative: dark asphalt has less of it, in gray levels, than bright concrete.
            base = self.color[:, :, channel].astype(np.float32)
            result[:, :, channel] = np.clip(base + tone * (0.35 + base * 0.005), 0, 255).astype(np.uint8)
        return result


_SPECIES: tuple[Color, ...] = ((62, 88, 40), (78, 104, 46), (52, 76, 42), (92, 110, 52), (70, 94, 56))
_BANK_SIZE = 10


@dataclass(frozen=True)
class Tree:
    """A crown of `radius` meters with its center at `height`; a bush has height zero."""

    x: float
    y: float
    radius: float
    height: float
    crown: int
    tint: Color


def make_tree(rng: np.random.Generator, x: float, y: float, radius: float) -> Tree:
    """Return a tree or bush with a random crown and tint."""
    height = 0.0 if radius < 0.9 else radius * rng.uniform(1.1, 1.7)
    tone = rng.normal(1.0, 0.09)
    tint = (float(tone * rng.normal(1.0, 0.06)), float(tone), float(tone * rng.normal(1.0, 0.05)))
    return Tree(x, y, radius, float(height), int(rng.integers(0, _BANK_SIZE)), tint)


class CrownBank:
    """Crown pictures: premultiplied color and coverage, lit from the sun's side."""

    def __init__(self, rng: np.random.Generator, camera: Camera, sun: Sun) -> None:
        side = int(np.clip(9 * camera.pixels_per_meter, 24, 160))
        bearing = sun.azimuth + camera.angle
        light = -np.array([np.cos(bearing), np.sin(bearing)])
        self._camera = camera
        self._crowns = [
            _crown(rng, side, light, sun.darkness, _SPECIES[k % len(_SPECIES)], conifer=k == _BANK_SIZE - 1)
            for k in range(_BANK_SIZE)
        ]

    def _placed(self, tree: Tree, center: NDArray[np.float64], radius: float) -> Sprite:
        color, coverage = self._crowns[tree.crown]
        side = max(2, round(2 * radius))
        left, top = np.round(center - side / 2).astype(int)
        size = (side, side)
        resized = cv2.resize(color, size, interpolation=cv2.INTER_AREA) * np.array(tree.tint, np.float32)
        alpha = cv2.resize(coverage, size, interpolation=cv2.INTER_AREA)
        return Sprite(int(left), int(top), np.asarray(resized, np.float32), np.asarray(alpha, np.float32))

    def sprite(self, tree: Tree, shade: float) -> Sprite | None:
        """Return the crown as the camera sees it, darkened by `shade` (0..1) where something taller blocks the sun."""
        center = self._camera.to_pixels([(tree.x, tree.y)], tree.height)[0]
        sprite = self._placed(tree, center, tree.radius * self._camera.pixels_per_meter)
        dimmed = Sprite(sprite.left, sprite.top, sprite.color * np.float32(1 - shade), sprite.coverage)
        return dimmed.clipped(self._camera.width, self._camera.height)

    def cast(self, tree: Tree, sun: Sun, shadows: ShadowMap) -> None:
        """Add the shadow of the crown, in the shape of the crown."""
        lift = max(tree.height, tree.radius * 0.5)
        foot = np.array([tree.x, tree.y]) + sun.offset(lift)
        center = self._camera.to_pixels(foot[None])[0]
        sprite = self._placed(tree, center, tree.radius * self._camera.pixels_per_meter)
        inside = sprite.clipped(self._camera.width, self._camera.height)
        if inside is not None:
            rows, columns = inside.coverage.shape
            area = shadows.coverage[inside.top : inside.top + rows, inside.left : inside.left + columns]
            np.maximum(area, (inside.coverage * 255).astype(np.uint8), out=area)


def _crown(
    rng: np.random.Generator,
    side: int,
    light: NDArray[np.float64],
    contrast: float,
    color: Color,
    conifer: bool,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return color and coverage of one crown: a dome broken into clumps, shaded by slope, ragged at the rim."""
    axis = (np.arange(side, dtype=np.float32) + 0.5) / side * 2 - 1
    x, y = np.meshgrid(axis, axis)
    distance = np.hypot(x, y)
    bearing = np.arctan2(y, x)
    rim = np.zeros_like(distance)
    for lobes in (2, 3, 5, 8):
        rim += np.float32(0.075 / lobes**0.4) * np.cos(lobes * bearing + np.float32(rng.uniform(0, 6.3)))
    if conifer:
        rim = np.float32(0.06) * np.cos(9 * bearing + np.float32(rng.uniform(0, 6.3)))
    clumps = drift(rng, side, side, side * 0.15, 2)
    leaves = grain(rng, side, side, max(0.7, side * 0.011))
    edge = distance - (0.84 + rim) + 0.05 * clumps + 0.03 * leaves
    coverage = np.clip(0.5 - edge * side * 0.25, 0, 1).astype(np.float32)
    dome = (1 - distance) if conifer else np.sqrt(np.clip(1.0 - distance**2, 0, 1))
    relief = dome * 0.75 + 0.11 * clumps + 0.035 * leaves
    slope_y, slope_x = np.gradient(relief * side * 0.3)
    lit = -(slope_x * light[0] + slope_y * light[1])
    shading = 1.0 + (0.35 + contrast) * np.clip(lit, -0.9, 1.1) * 0.55
    # Gaps between clumps are dark.
    shading *= np.clip(0.98 + 0.17 * clumps + 0.05 * leaves, 0.45, 1.35) * (0.78 + 0.22 * dome)
    tinted = shading[..., None] * np.array(color, np.float32)
    tinted += np.clip(lit, 0, 1)[..., None] * np.array((16, 14, 2), np.float32)
    premultiplied = np.clip(tinted, 0, 255) * coverage[..., None]
    return premultiplied.astype(np.float32), coverage
