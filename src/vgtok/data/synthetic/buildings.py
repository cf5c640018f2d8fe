"""Buildings: a box with walls that show where the perspective turns them to the camera, and a roof picture on top."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .geometry import SUBPIXEL_BITS, ByteArray, Colour, FloatArray, View, fixed_point, oriented
from .objects import Sprite, dim, mix
from .roofs import ROOF_PAINTS, RoofKind, RoofPainter
from .shading import Sun

_WALLS: tuple[Colour, ...] = (
    (196, 188, 174),
    (176, 162, 146),
    (206, 204, 198),
    (164, 136, 118),
    (160, 160, 160),
)


@dataclass(frozen=True)
class Building:
    """An upright box, metres and radians; its length runs along `heading`."""

    x: float
    y: float
    length: float
    width: float
    heading: float
    height: float
    roof: RoofKind
    roof_colour: Colour
    wall_colour: Colour

    @property
    def footprint(self) -> FloatArray:
        """Its corners (4, 2) on the ground."""
        return oriented((self.x, self.y), self.length, self.width, self.heading)


def make_building(
    rng: np.random.Generator,
    x: float,
    y: float,
    length: float,
    width: float,
    heading: float,
    height: float,
    roof: RoofKind,
) -> Building:
    """A building with drawn paint; ridges run along the longer side."""
    if width > length:
        length, width, heading = width, length, heading + np.pi / 2
    paints = ROOF_PAINTS[roof]
    base = paints[int(rng.integers(len(paints)))]
    tone = rng.normal(1.0, 0.05)
    red, green, blue = (float(part * tone * tint) for part, tint in zip(base, rng.normal(1.0, 0.012, 3), strict=True))
    wall = _WALLS[int(rng.integers(len(_WALLS)))]
    return Building(x, y, length, width, heading, height, roof, (red, green, blue), wall)


def building_sprite(rng: np.random.Generator, building: Building, view: View, sun: Sun) -> Sprite | None:
    """The building as it appears in the frame."""
    ground = view.to_pixels(building.footprint)
    crown = view.to_pixels(building.footprint, building.height)
    corners = np.concatenate([ground, crown])
    low = np.maximum(np.floor(corners.min(0)).astype(int) - 2, 0)
    high = np.minimum(np.ceil(corners.max(0)).astype(int) + 2, (view.width, view.height))
    if np.any(high - low < 1):
        return None
    columns, rows = high - low
    colour: ByteArray = np.zeros((rows, columns, 3), np.uint8)
    mask: ByteArray = np.zeros((rows, columns), np.uint8)
    for k in range(4):
        edge = [k, (k + 1) % 4]
        normal = building.heading + (k - 1) * np.pi / 2
        light = 0.62 + 0.3 * sun.darkness * sun.facing(normal)
        _wall(colour, mask, ground[edge] - low, crown[edge] - low, dim(building.wall_colour, light), building)
    scale = view.pixels_per_metre * view.altitude / (view.altitude - building.height)
    toward = sun.azimuth + np.pi - building.heading
    painter = RoofPainter(
        rng, building.length, building.width, scale, np.array([np.cos(toward), np.sin(toward)]), sun.darkness
    )
    picture = painter.paint(building.roof, building.roof_colour)
    height, width = picture.shape[:2]
    source = np.array([[0, 0], [width, 0], [width, height]], np.float32) - np.float32(0.5)
    target = (crown[:3] - low - 0.5).astype(np.float32)
    warp = cv2.getAffineTransform(source, target)
    size = (int(columns), int(rows))
    roof = cv2.warpAffine(picture, warp, size, flags=cv2.INTER_LINEAR)
    cover = cv2.warpAffine(np.ones((height, width), np.float32), warp, size, flags=cv2.INTER_LINEAR)
    alpha = np.asarray(cover, np.float32)
    below = 1 - alpha
    blended = colour * below[..., None] + roof
    coverage = mask.astype(np.float32) / np.float32(255) * below + alpha
    return Sprite(int(low[0]), int(low[1]), blended.astype(np.float32), coverage)


def _wall(
    colour: ByteArray, mask: ByteArray, foot: FloatArray, eave: FloatArray, paint: Colour, building: Building
) -> None:
    """One wall between its foot (2, 2) and its eave (2, 2), with rows of windows if there is room to see them."""
    quad = np.concatenate([foot, eave[::-1]])
    fixed = [fixed_point(quad)]
    cv2.fillPoly(colour, fixed, paint, cv2.LINE_AA, SUBPIXEL_BITS)
    cv2.fillPoly(mask, fixed, 255, cv2.LINE_AA, SUBPIXEL_BITS)
    span = float(np.hypot(*(foot[1] - foot[0])))
    drop = float(np.hypot(*(eave[0] - foot[0])))
    floors = max(1, int(building.height / 3.2))
    bays = max(1, int(span / (drop / floors + 6)))
    if drop / floors < 2.5 or span < 12:
        return
    glass = dim(mix(paint, (92, 104, 116), 0.5), 0.62)
    for floor in range(floors):
        bottom, top = (floor + 0.34) / floors, (floor + 0.74) / floors
        for bay in range(bays):
            near, far = (bay + 0.3) / bays, (bay + 0.68) / bays
            window = [
                (foot[0] + (foot[1] - foot[0]) * along) * (1 - up) + (eave[0] + (eave[1] - eave[0]) * along) * up
                for along, up in ((near, bottom), (far, bottom), (far, top), (near, top))
            ]
            cv2.fillPoly(colour, [fixed_point(np.array(window))], glass, cv2.LINE_AA, SUBPIXEL_BITS)
