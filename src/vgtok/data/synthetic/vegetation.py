"""Tree crowns and bushes: a small bank of lit crown pictures, resized and tinted for every plant."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.geometry import Colour, View, drift, grain
from vgtok.data.synthetic.lighting import ShadowMap, Sun
from vgtok.data.synthetic.objects import Sprite

_SPECIES: tuple[Colour, ...] = ((62, 88, 40), (78, 104, 46), (52, 76, 42), (92, 110, 52), (70, 94, 56))
_BANK_SIZE = 10


@dataclass(frozen=True)
class Tree:
    """A crown of `radius` metres whose middle floats at `height`; a bush has height zero."""

    x: float
    y: float
    radius: float
    height: float
    crown: int
    tint: Colour


def make_tree(rng: np.random.Generator, x: float, y: float, radius: float) -> Tree:
    """A tree or bush with drawn crown shape and tint."""
    height = 0.0 if radius < 0.9 else radius * rng.uniform(1.1, 1.7)
    tone = rng.normal(1.0, 0.09)
    tint = (float(tone * rng.normal(1.0, 0.06)), float(tone), float(tone * rng.normal(1.0, 0.05)))
    return Tree(x, y, radius, float(height), int(rng.integers(0, _BANK_SIZE)), tint)


class CrownBank:
    """Crown pictures: premultiplied colour and coverage, lit from the sun's side."""

    def __init__(self, rng: np.random.Generator, view: View, sun: Sun) -> None:
        side = int(np.clip(9 * view.pixels_per_metre, 24, 160))
        bearing = sun.azimuth + view.angle
        light = -np.array([np.cos(bearing), np.sin(bearing)])
        self._view = view
        self._crowns = [
            _crown(rng, side, light, sun.darkness, _SPECIES[k % len(_SPECIES)], conifer=k == _BANK_SIZE - 1)
            for k in range(_BANK_SIZE)
        ]

    def _placed(self, tree: Tree, centre: NDArray[np.float64], radius: float) -> Sprite:
        colour, coverage = self._crowns[tree.crown]
        side = max(2, round(2 * radius))
        left, top = np.round(centre - side / 2).astype(int)
        size = (side, side)
        resized = cv2.resize(colour, size, interpolation=cv2.INTER_AREA) * np.array(tree.tint, np.float32)
        alpha = cv2.resize(coverage, size, interpolation=cv2.INTER_AREA)
        return Sprite(int(left), int(top), np.asarray(resized, np.float32), np.asarray(alpha, np.float32))

    def sprite(self, tree: Tree, shade: float) -> Sprite | None:
        """The crown as the camera sees it, darkened by `shade` (0..1) where something taller keeps the sun off."""
        centre = self._view.to_pixels([(tree.x, tree.y)], tree.height)[0]
        sprite = self._placed(tree, centre, tree.radius * self._view.pixels_per_metre)
        dimmed = Sprite(sprite.left, sprite.top, sprite.colour * np.float32(1 - shade), sprite.coverage)
        return dimmed.clipped(self._view.width, self._view.height)

    def cast(self, tree: Tree, sun: Sun, shadows: ShadowMap) -> None:
        """Add the crown's shadow, in the crown's own shape."""
        lift = max(tree.height, tree.radius * 0.5)
        foot = np.array([tree.x, tree.y]) + sun.offset(lift)
        centre = self._view.to_pixels(foot[None])[0]
        sprite = self._placed(tree, centre, tree.radius * self._view.pixels_per_metre)
        inside = sprite.clipped(self._view.width, self._view.height)
        if inside is not None:
            rows, columns = inside.coverage.shape
            area = shadows.coverage[inside.top : inside.top + rows, inside.left : inside.left + columns]
            np.maximum(area, (inside.coverage * 255).astype(np.uint8), out=area)


def _crown(
    rng: np.random.Generator,
    side: int,
    light: NDArray[np.float64],
    contrast: float,
    colour: Colour,
    conifer: bool,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """One crown: a dome broken into clumps, shaded by its slope, ragged at the rim."""
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
    # Gaps between clumps look into the dark of the crown.
    shading *= np.clip(0.98 + 0.17 * clumps + 0.05 * leaves, 0.45, 1.35) * (0.78 + 0.22 * dome)
    tinted = shading[..., None] * np.array(colour, np.float32)
    tinted += np.clip(lit, 0, 1)[..., None] * np.array((16, 14, 2), np.float32)
    premultiplied = np.clip(tinted, 0, 255) * coverage[..., None]
    return premultiplied.astype(np.float32), coverage
