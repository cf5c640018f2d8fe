"""Roof pictures in the building's own axes: flat with plant on top, gabled or hipped with tiles, ribbed metal."""

from __future__ import annotations

from enum import IntEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from .geometry import Colour
from .noise import drift, grain

Picture = NDArray[np.float32]


class RoofKind(IntEnum):
    """How a roof is built."""

    FLAT = 0
    GABLE = 1
    HIP = 2
    METAL = 3


ROOF_PAINTS: dict[RoofKind, tuple[Colour, ...]] = {
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
    """A roof picture (H, W, 3) under way: `scale` pixels a metre, light from direction `light` (2,) in its axes."""

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

    def paint(self, kind: RoofKind, colour: Colour) -> Picture:
        """The roof of a kind, in one base colour."""
        tone = 1 + 0.035 * drift(self._rng, self._rows, self._columns, max(3.0, 3.0 * self._scale), 3)
        tone += 0.02 * grain(self._rng, self._rows, self._columns, 0.6)
        if kind == RoofKind.FLAT:
            picture = self._flat(tone, colour)
        elif kind == RoofKind.METAL:
            picture = self._metal(tone, colour)
        else:
            picture = self._tiled(tone, colour, hipped=kind == RoofKind.HIP)
        return np.clip(picture, 0, 255).astype(np.float32)

    def _axes(self) -> tuple[Picture, Picture]:
        """Metres along the length (1, W) and the width (H, 1), from the roof's middle."""
        u = (np.arange(self._columns, dtype=np.float32) + 0.5) / self._scale - self._length / 2
        v = (np.arange(self._rows, dtype=np.float32) + 0.5) / self._scale - self._width / 2
        return u[None].astype(np.float32), v[:, None].astype(np.float32)

    def _box(self, picture: Picture, u: float, v: float, long: float, wide: float, colour: Colour, tall: float) -> None:
        """A box on the roof with its shadow; `tall` zero lays it flat."""
        reach = -self._light * tall
        for shift, paint in ((reach, None), (np.zeros(2), colour)):
            x0 = int((u - long / 2 + min(0.0, shift[0]) + self._length / 2) * self._scale)
            x1 = int(np.ceil((u + long / 2 + max(0.0, shift[0]) + self._length / 2) * self._scale))
            y0 = int((v - wide / 2 + min(0.0, shift[1]) + self._width / 2) * self._scale)
            y1 = int(np.ceil((v + wide / 2 + max(0.0, shift[1]) + self._width / 2) * self._scale))
            area = picture[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)]
            if paint is not None:
                area[:] = paint
            elif tall > 0:
                area *= np.float32(1 - self._darkness * 0.9)

    def _flat(self, tone: Picture, colour: Colour) -> Picture:
        picture = (tone[..., None] * np.array(colour, np.float32)).astype(np.float32)
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
        rim = np.minimum(np.array(colour, np.float32) * 1.18 + 12, 235)
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
        """Brightness of a slope that looks in `direction`, relative to level ground."""
        facing = direction[0] * self._light[0] + direction[1] * self._light[1]
        return float(1.0 + 0.62 * self._darkness * facing)

    def _tiled(self, tone: Picture, colour: Colour, hipped: bool) -> Picture:
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
        picture = (level[..., None] * np.array(colour, np.float32)).astype(np.float32)
        picture[ridge] = picture[ridge] * 0.6 + np.array(colour, np.float32) * 0.55
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

    def _metal(self, tone: Picture, colour: Colour) -> Picture:
        u, v = self._axes()
        pitch = 0.35
        shade = np.where(v < 0, 1 + (self._slope((0, -1)) - 1) * pitch, 1 + (self._slope((0, 1)) - 1) * pitch)
        ribs = 1 - 0.09 * (np.mod(u / (0.6 if self._scale > 8 else 1.0), 1) < 0.3)
        sheets = 1 + 0.025 * np.sign(np.sin(u * 1.1 + 2 * np.sin(u * 0.37)))
        level = tone * shade * ribs * sheets
        picture = (level[..., None] * np.array(colour, np.float32)).astype(np.float32)
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
