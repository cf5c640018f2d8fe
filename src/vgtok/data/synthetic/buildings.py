"""Buildings: make one from a footprint, a height and a kind of roof, and paint it as a sprite."""

from __future__ import annotations

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
    drift,
    fixed_point,
    grain,
    oriented,
)
from vgtok.data.synthetic.objects import Sprite, Sun, dim, mix

Picture = NDArray[np.float32]


class RoofKind(IntEnum):
    """How a roof is built."""

    FLAT = 0
    GABLE = 1
    HIP = 2
    METAL = 3


ROOF_PAINTS: dict[RoofKind, tuple[Color, ...]] = {
    RoofKind.FLAT: (
        (148, 146, 140),
        (116, 114, 112),
        (172, 168, 158),
        (92, 90, 90),
        (186, 184, 180),
        (136, 122, 108),
    ),
    RoofKind.GABLE: ((146, 84, 62), (122, 66, 52), (96, 88, 84), (160, 106, 78), (84, 78, 78)),
    RoofKind.HIP: ((138, 76, 58), (108, 98, 92), (150, 96, 70), (88, 74, 68)),
    RoofKind.METAL: ((150, 158, 164), (92, 122, 156), (166, 168, 168), (138, 66, 58), (112, 120, 118)),
}


class RoofPainter:
    """Paint one roof as a picture (H, W, 3): `scale` pixels per meter, lit from `light` (2,) in its axes."""

    def __init__(
        self,
        rng: np.random.Generator,
        length: float,
        width: float,
        scale: float,
        light: NDArray[np.float64],
        darkness: float,
    ) -> None:
        self._rng = rng
        self._columns = max(3, round(length * scale))
        self._rows = max(3, round(width * scale))
        self._length, self._width, self._scale = length, width, scale
        self._light, self._darkness = light, darkness

    def paint(self, kind: RoofKind, color: Color) -> Picture:
        """Return the roof of a kind (H, W, 3), in one base color."""
        tone = 1 + 0.035 * drift(self._rng, self._rows, self._columns, max(3.0, 3.0 * self._scale), 3)
        tone += 0.02 * grain(self._rng, self._rows, self._columns, 0.6)
        if kind == RoofKind.FLAT:
            picture = self._flat(tone, color)
        elif kind == RoofKind.METAL:
            picture = self._metal(tone, color)
        else:
            picture = self._tiled(tone, color, hipped=kind == RoofKind.HIP)
        return np.clip(picture, 0, 255).astype(np.float32)

    def _axes(self) -> tuple[Picture, Picture]:
        """Return meters along the length (1, W) and the width (H, 1), from the center of the roof."""
        u = (np.arange(self._columns, dtype=np.float32) + 0.5) / self._scale - self._length / 2
        v = (np.arange(self._rows, dtype=np.float32) + 0.5) / self._scale - self._width / 2
        return u[None].astype(np.float32), v[:, None].astype(np.float32)

    def _box(self, picture: Picture, u: float, v: float, long: float, wide: float, color: Color, tall: float) -> None:
        """Draw a box on the roof with its shadow; with `tall` zero it is flat."""
        reach = -self._light * tall
        for shift, paint in ((reach, None), (np.zeros(2), color)):
            x0 = int((u - long / 2 + min(0.0, shift[0]) + self._length / 2) * self._scale)
            x1 = int(np.ceil((u + long / 2 + max(0.0, shift[0]) + self._length / 2) * self._scale))
            y0 = int((v - wide / 2 + min(0.0, shift[1]) + self._width / 2) * self._scale)
            y1 = int(np.ceil((v + wide / 2 + max(0.0, shift[1]) + self._width / 2) * self._scale))
            area = picture[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)]
            if paint is not None:
                area[:] = paint
            elif tall > 0:
                area *= np.float32(1 - self._darkness * 0.9)

    def _flat(self, tone: Picture, color: Color) -> Picture:
        picture = (tone[..., None] * np.array(color, np.float32)).astype(np.float32)
        rng, scale = self._rng, self._scale
        # Roofing felt lies in strips, and water stands where the drains are.
        seam = max(1.0, rng.uniform(2.0, 4.0) * scale)
        for x in np.arange(seam, self._columns, seam):
            picture[:, int(x)] *= 0.95
        stains = drift(rng, self._rows, self._columns, max(3.0, 5 * scale), 2)
        picture *= (1 - 0.16 * np.clip(stains - 0.7, 0, 1))[..., None]
        self._equipment(picture)
        border = max(1, round(0.35 * scale))
        ledge = max(1, round(0.7 * scale))
        if self._light[0] > 0:
            picture[:, -border - ledge : -border] *= 1 - self._darkness * 0.7
        else:
            picture[:, border : border + ledge] *= 1 - self._darkness * 0.7
        if self._light[1] > 0:
            picture[-border - ledge : -border] *= 1 - self._darkness * 0.7
        else:
            picture[border : border + ledge] *= 1 - self._darkness * 0.7
        rim = np.minimum(np.array(color, np.float32) * 1.18 + 12, 235)
        picture[:border] = picture[-border:] = rim
        picture[:, :border] = picture[:, -border:] = rim
        return picture

    def _equipment(self, picture: Picture) -> None:
        rng = self._rng
        spare_u, spare_v = self._length / 2 - 2.0, self._width / 2 - 2.0
        if spare_u < 0.5 or spare_v < 0.5:
            return
        area = self._length * self._width
        if area > 120 and rng.random() < 0.75:
            u, v = rng.uniform(-spare_u, spare_u) * 0.7, rng.uniform(-spare_v, spare_v) * 0.7
            self._box(picture, u, v, rng.uniform(3, 8), rng.uniform(2.5, 5), (176, 172, 164), 2.4)
        if area > 120 and rng.random() < 0.45:
            u, v = rng.uniform(-spare_u, spare_u) * 0.6, rng.uniform(-spare_v, spare_v) * 0.6
            for k in range(int(rng.integers(2, 6))):
                self._box(picture, u + 1.8 * k, v, 1.5, 2.6, (38, 48, 72), 0.3)
        if area > 90 and rng.random() < 0.5:
            # A row of cooling units and the duct they feed.
            u, v = rng.uniform(-spare_u, 0.0), rng.uniform(-spare_v, spare_v) * 0.8
            units = int(rng.integers(3, 8))
            self._box(picture, u + units * 0.9, v + 1.1, units * 1.8, 0.35, (188, 190, 190), 0.4)
            for k in range(units):
                self._box(picture, u + 1.8 * k, v, 1.1, 1.0, (206, 206, 202), 0.9)
                self._box(picture, u + 1.8 * k, v, 0.6, 0.6, (92, 94, 96), 0.0)
        for _ in range(int(min(24, area / 45 * rng.uniform(0.3, 1.2)))):
            u, v = rng.uniform(-spare_u, spare_u), rng.uniform(-spare_v, spare_v)
            shade = rng.uniform(130, 225)
            self._box(picture, u, v, rng.uniform(0.5, 1.6), rng.uniform(0.5, 1.4), (shade, shade, shade * 0.98), 0.6)
            if rng.random() < 0.3:
                self._box(picture, u, v, 0.35, 0.35, (60, 62, 64), 0.0)
        if area > 300 and rng.random() < 0.5:
            v = rng.uniform(-spare_v, spare_v) * 0.5
            for u in np.arange(-spare_u * 0.8, spare_u * 0.8, rng.uniform(4, 7)):
                self._box(picture, float(u), v, 2.0, 1.3, (196, 208, 214), 0.4)

    def _slope(self, direction: tuple[float, float]) -> float:
        """Return the brightness of a slope that faces `direction`, relative to level ground."""
        facing = direction[0] * self._light[0] + direction[1] * self._light[1]
        return float(1.0 + 0.62 * self._darkness * facing)

    def _tiled(self, tone: Picture, color: Color, hipped: bool) -> Picture:
        u, v = self._axes()
        shade = np.where(v < 0, self._slope((0, -1)), self._slope((0, 1))).astype(np.float32)
        rows = np.broadcast_to(np.abs(v), tone.shape)
        shade = np.broadcast_to(shade, tone.shape).copy()
        ridge = np.broadcast_to(np.abs(v) < 0.16, tone.shape).copy()
        if hipped:
            rise = self._length / 2 - self._width / 2
            end = np.abs(u) - rise > np.abs(v)
            shade = np.where(end, np.where(u < 0, self._slope((-1, 0)), self._slope((1, 0))), shade)
            rows = np.where(end, np.abs(u), rows)
            ridge = np.where(np.abs(u) > rise, np.abs(np.abs(u) - rise - np.abs(v)) < 0.2, ridge)
        course = 0.34 if self._scale > 7 else 0.6
        tiles = 1 - 0.10 * (np.mod(rows / course, 1) < 0.3)
        columns = 1 - 0.035 * (np.mod(u / (course * 0.9), 1) < 0.35)
        weather = 1 + 0.05 * drift(self._rng, self._rows, self._columns, max(2.0, 0.6 * self._scale), 1)
        level = tone * shade * tiles * columns * weather
        picture = (level[..., None] * np.array(color, np.float32)).astype(np.float32)
        picture[ridge] = picture[ridge] * 0.6 + np.array(color, np.float32) * 0.55
        rng = self._rng
        if rng.random() < 0.7:
            u0, v0 = rng.uniform(-0.3, 0.3) * self._length, rng.uniform(-0.12, 0.12) * self._width
            self._box(picture, u0, v0, 0.8, 0.7, (150, 112, 96), 1.2)
            self._box(picture, u0, v0, 0.4, 0.3, (44, 40, 40), 0.0)
        for _ in range(int(rng.integers(0, 4))):
            u0 = rng.uniform(-0.35, 0.35) * self._length
            v0 = float(rng.choice([-1, 1])) * self._width * rng.uniform(0.2, 0.3)
            self._box(picture, u0, v0, 0.9, 1.2, (86, 102, 116), 0.0)
        if rng.random() < 0.25 and self._width > 7:
            v0 = self._width * 0.26 * (1 if self._light[1] > 0 else -1)
            for k in range(int(rng.integers(3, 7))):
                self._box(picture, (k - 2.5) * 1.15, v0, 1.05, 1.7, (34, 42, 64), 0.0)
        return np.asarray(picture, np.float32)

    def _metal(self, tone: Picture, color: Color) -> Picture:
        u, v = self._axes()
        pitch = 0.35
        shade = np.where(v < 0, 1 + (self._slope((0, -1)) - 1) * pitch, 1 + (self._slope((0, 1)) - 1) * pitch)
        ribs = 1 - 0.09 * (np.mod(u / (0.6 if self._scale > 8 else 1.0), 1) < 0.3)
        sheets = 1 + 0.025 * np.sign(np.sin(u * 1.1 + 2 * np.sin(u * 0.37)))
        level = tone * shade * ribs * sheets
        picture = (level[..., None] * np.array(color, np.float32)).astype(np.float32)
        ridge = np.broadcast_to(np.abs(v) < 0.25, tone.shape)
        picture[ridge] *= 1.12
        rust = drift(self._rng, self._rows, self._columns, max(3.0, 4 * self._scale), 2)
        picture += (np.clip(rust - 1.0, 0, 1)[..., None] * np.array((14, -8, -24), np.float32)).astype(np.float32)
        if self._rng.random() < 0.7:
            for u0 in np.arange(-self._length / 2 + 4, self._length / 2 - 3, self._rng.uniform(5, 9)):
                for side in (-1, 1):
                    self._box(
                        picture,
                        float(u0),
                        side * self._width * 0.25,
                        1.0,
                        self._width * 0.3,
                        (206, 212, 208),
                        0.0,
                    )
        for _ in range(int(self._rng.integers(0, 6))):
            u0 = self._rng.uniform(-0.42, 0.42) * self._length
            self._box(picture, u0, 0.0, 0.9, 0.9, (150, 152, 152), 0.7)
        return np.asarray(cv2.GaussianBlur(picture, (0, 0), 0.5), np.float32)


_WALLS: tuple[Color, ...] = (
    (196, 188, 174),
    (176, 162, 146),
    (206, 204, 198),
    (164, 136, 118),
    (160, 160, 160),
)


@dataclass(frozen=True)
class Building:
    """An upright box in meters and radians; its length runs along `heading`."""

    x: float
    y: float
    length: float
    width: float
    heading: float
    height: float
    roof: RoofKind
    roof_color: Color
    wall_color: Color

    @property
    def footprint(self) -> FloatArray:
        """Corners (4, 2) on the ground."""
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
    """Return a building with a random color; the ridge runs along the longer side."""
    if width > length:
        length, width, heading = width, length, heading + np.pi / 2
    paints = ROOF_PAINTS[roof]
    base = paints[int(rng.integers(len(paints)))]
    tone = rng.normal(1.0, 0.05)
    red, green, blue = (float(part * tone * tint) for part, tint in zip(base, rng.normal(1.0, 0.012, 3), strict=True))
    wall = _WALLS[int(rng.integers(len(_WALLS)))]
    return Building(x, y, length, width, heading, height, roof, (red, green, blue), wall)


def building_sprite(rng: np.random.Generator, building: Building, camera: Camera, sun: Sun) -> Sprite | None:
    """Return the building as it appears in the image, or None if it is outside."""
    ground = camera.to_pixels(building.footprint)
    crown = camera.to_pixels(building.footprint, building.height)
    corners = np.concatenate([ground, crown])
    low = np.maximum(np.floor(corners.min(0)).astype(int) - 2, 0)
    high = np.minimum(np.ceil(corners.max(0)).astype(int) + 2, (camera.width, camera.height))
    if np.any(high - low < 1):
        return None
    columns, rows = high - low
    color: ByteArray = np.zeros((rows, columns, 3), np.uint8)
    mask: ByteArray = np.zeros((rows, columns), np.uint8)
    for k in range(4):
        edge = [k, (k + 1) % 4]
        normal = building.heading + (k - 1) * np.pi / 2
        light = 0.62 + 0.3 * sun.darkness * sun.facing(normal)
        _wall(color, mask, ground[edge] - low, crown[edge] - low, dim(building.wall_color, light), building)
    scale = camera.pixels_per_meter * camera.altitude / (camera.altitude - building.height)
    toward = sun.azimuth + np.pi - building.heading
    painter = RoofPainter(
        rng, building.length, building.width, scale, np.array([np.cos(toward), np.sin(toward)]), sun.darkness
    )
    picture = painter.paint(building.roof, building.roof_color)
    height, width = picture.shape[:2]
    source = np.array([[0, 0], [width, 0], [width, height]], np.float32) - np.float32(0.5)
    target = (crown[:3] - low - 0.5).astype(np.float32)
    warp = cv2.getAffineTransform(source, target)
    size = (int(columns), int(rows))
    roof = cv2.warpAffine(picture, warp, size, flags=cv2.INTER_LINEAR)
    cover = cv2.warpAffine(np.ones((height, width), np.float32), warp, size, flags=cv2.INTER_LINEAR)
    alpha = np.asarray(cover, np.float32)
    below = 1 - alpha
    blended = color * below[..., None] + roof
    coverage = mask.astype(np.float32) / np.float32(255) * below + alpha
    return Sprite(int(low[0]), int(low[1]), blended.astype(np.float32), coverage)


def _wall(
    color: ByteArray, mask: ByteArray, foot: FloatArray, eave: FloatArray, paint: Color, building: Building
) -> None:
    """Draw one wall between its foot (2, 2) and its eave (2, 2), with windows where they are large enough to see."""
    quad = np.concatenate([foot, eave[::-1]])
    fixed = [fixed_point(quad)]
    cv2.fillPoly(color, fixed, paint, cv2.LINE_AA, SUBPIXEL_BITS)
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
            cv2.fillPoly(color, [fixed_point(np.array(window))], glass, cv2.LINE_AA, SUBPIXEL_BITS)
