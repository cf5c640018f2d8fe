"""The scene under construction: layouts draw on its ground and place buildings, plants, poles and actors.

Makes the actors too: draws size, color and variant for a class, and knows which function paints it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.actors import (
    paint_awning_tricycle,
    paint_bicycle,
    paint_bus,
    paint_car,
    paint_motor,
    paint_pedestrian,
    paint_seated,
    paint_ship,
    paint_tricycle,
    paint_truck,
    paint_van,
)
from vgtok.data.synthetic.buildings import Building, RoofKind, make_building
from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Camera,
    Color,
    FloatArray,
    Polyline,
    fixed_point,
    oriented,
)
from vgtok.data.synthetic.ground import Ground, Tree, make_tree
from vgtok.data.synthetic.objects import BODY_SIZES, Actor, Brush, Kind, Sprite, Sun

_CAR: tuple[tuple[float, Color], ...] = (
    (26, (226, 228, 228)),
    (14, (168, 172, 176)),
    (11, (112, 116, 120)),
    (17, (34, 36, 40)),
    (6, (62, 66, 72)),
    (7, (150, 34, 34)),
    (5, (44, 66, 112)),
    (3, (88, 124, 160)),
    (3, (160, 142, 112)),
    (3, (84, 160, 152)),
    (2, (210, 170, 52)),
    (2, (70, 52, 44)),
    (1, (58, 92, 66)),
)
_VAN: tuple[tuple[float, Color], ...] = (
    (12, (228, 228, 224)),
    (5, (170, 174, 176)),
    (2, (52, 56, 60)),
    (1, (196, 160, 60)),
    (1, (70, 96, 140)),
)
_TRUCK: tuple[tuple[float, Color], ...] = (
    (6, (214, 214, 210)),
    (3, (52, 84, 136)),
    (3, (160, 52, 44)),
    (2, (76, 110, 88)),
    (2, (176, 150, 104)),
    (2, (126, 130, 132)),
)
_BUS: tuple[tuple[float, Color], ...] = (
    (3, (172, 40, 44)),
    (3, (62, 120, 150)),
    (2, (84, 150, 84)),
    (2, (214, 190, 90)),
    (3, (224, 224, 220)),
)
_CLOTHES: tuple[tuple[float, Color], ...] = (
    (7, (222, 220, 216)),
    (6, (40, 42, 48)),
    (4, (92, 98, 108)),
    (3, (150, 44, 48)),
    (3, (54, 76, 124)),
    (2, (190, 160, 84)),
    (2, (84, 124, 92)),
    (2, (196, 128, 148)),
    (1, (226, 120, 50)),
)
_SMALL: tuple[tuple[float, Color], ...] = (
    (4, (44, 46, 50)),
    (3, (158, 42, 40)),
    (2, (206, 176, 62)),
    (2, (62, 90, 140)),
    (2, (206, 208, 206)),
)
_CANOPY: tuple[tuple[float, Color], ...] = (
    (4, (176, 46, 42)),
    (3, (56, 92, 150)),
    (3, (70, 132, 92)),
    (1, (206, 170, 70)),
    (1, (150, 152, 154)),
)
_HULL: tuple[tuple[float, Color], ...] = (
    (5, (224, 226, 226)),
    (3, (46, 74, 110)),
    (3, (146, 52, 44)),
    (2, (60, 98, 96)),
    (2, (52, 54, 58)),
)

_PAINTS: dict[Kind, tuple[tuple[float, Color], ...]] = {
    Kind.PEDESTRIAN: _CLOTHES,
    Kind.PEOPLE: _CLOTHES,
    Kind.BICYCLE: _SMALL,
    Kind.CAR: _CAR,
    Kind.VAN: _VAN,
    Kind.TRUCK: _TRUCK,
    Kind.TRICYCLE: _CANOPY,
    Kind.AWNING_TRICYCLE: _CANOPY,
    Kind.BUS: _BUS,
    Kind.MOTOR: _SMALL,
    Kind.SHIP: _HULL,
}

_PAINTERS: dict[Kind, Callable[[Brush, Actor], None]] = {
    Kind.PEDESTRIAN: paint_pedestrian,
    Kind.PEOPLE: paint_seated,
    Kind.BICYCLE: paint_bicycle,
    Kind.CAR: paint_car,
    Kind.VAN: paint_van,
    Kind.TRUCK: paint_truck,
    Kind.TRICYCLE: paint_tricycle,
    Kind.AWNING_TRICYCLE: paint_awning_tricycle,
    Kind.BUS: paint_bus,
    Kind.MOTOR: paint_motor,
    Kind.SHIP: paint_ship,
}


def make_actor(rng: np.random.Generator, kind: Kind, x: float, y: float, heading: float, parked: bool = False) -> Actor:
    """Return an actor of a class at a place, with random size and color; `parked` two-wheelers have no rider."""
    extent = BODY_SIZES[kind]
    shrink = 1 - extent.spread * rng.random()
    weights, colors = zip(*_PAINTS[kind], strict=True)
    chosen = colors[int(rng.choice(len(colors), p=np.array(weights) / sum(weights)))]
    jitter = rng.normal(0, 5, 3)
    red, green, blue = (float(np.clip(part + shift, 8, 245)) for part, shift in zip(chosen, jitter, strict=True))
    variant = int(rng.integers(0, 240)) * 2 + int(parked)
    if kind not in (Kind.BICYCLE, Kind.MOTOR):
        variant = variant // 2 + int(rng.integers(0, 2))
    width = extent.width * (1 - (1 - shrink) * 0.4)
    height = extent.height * (1 - (1 - shrink) * 0.6)
    return Actor(kind, x, y, heading, extent.length * shrink, width, height, (red, green, blue), variant)


def make_ship(rng: np.random.Generator, x: float, y: float, heading: float, length: float) -> Actor:
    """Return a ship of a given length; width and height follow from it."""
    ship = make_actor(rng, Kind.SHIP, x, y, heading)
    width = length * (0.33 if length < 9 else 0.26 if length < 20 else 0.19)
    height = 1.6 if length < 9 else 2.0 + 0.1 * length
    return Actor(Kind.SHIP, x, y, heading, length, width, height, ship.color, ship.variant)


def paint(actor: Actor, camera: Camera) -> Sprite | None:
    """Return the actor as it appears in the image, or None if it is outside."""
    if not camera.sees((actor.x, actor.y), actor.length / 2 + actor.height + 1):
        return None
    brush = Brush(actor, camera)
    _PAINTERS[actor.kind](brush, actor)
    return brush.sprite().clipped(camera.width, camera.height)


class Occupancy:
    """A coarse raster of occupied ground, so that solid things do not overlap."""

    def __init__(self, camera: Camera) -> None:
        self._scale = min(1.0, 4.0 / camera.pixels_per_meter)
        self._margin = 80
        shape = [int(side * self._scale) + 2 * self._margin for side in (camera.height, camera.width)]
        self._camera = camera
        self._taken: ByteArray = np.zeros(shape, np.uint8)

    def claim(self, shape: FloatArray, test_only: bool = False) -> bool:
        """Occupy a polygon (N, 2) of scene points if all of it is free; return whether it was."""
        pixels = self._camera.to_pixels(shape) * self._scale + self._margin
        low = np.maximum(np.floor(pixels.min(0)).astype(int), 0)
        high = np.minimum(np.ceil(pixels.max(0)).astype(int) + 1, self._taken.shape[::-1])
        if np.any(high <= low):
            return False
        patch: ByteArray = np.zeros((high[1] - low[1], high[0] - low[0]), np.uint8)
        cv2.fillPoly(patch, [fixed_point(pixels - low)], 1, cv2.LINE_8, SUBPIXEL_BITS)
        area = self._taken[low[1] : high[1], low[0] : high[0]]
        if np.any(area & patch):
            return False
        if not test_only:
            area |= patch
        return True


@dataclass(frozen=True)
class Pole:
    """A lamp post, a signal mast or the leg of a crane, with an arm towards `heading`."""

    x: float
    y: float
    height: float
    heading: float
    arm: float
    girth: float = 0.16
    color: Color = (150, 152, 152)


@dataclass
class Stage:
    """What a layout draws with, and what it has placed."""

    camera: Camera
    sun: Sun
    rng: np.random.Generator
    ground: Ground
    traffic: float
    crowd: float
    water: float
    occupancy: Occupancy
    buildings: list[Building] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    poles: list[Pole] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)

    def place(self, actor: Actor, clearance: float = 0.35) -> bool:
        """Place an actor if it may be visible and its ground is free; return whether it was placed."""
        if not self.camera.sees((actor.x, actor.y), actor.length / 2 + 2):
            return False
        shape = oriented((actor.x, actor.y), actor.length + clearance, actor.width + clearance, actor.heading)
        if not self.occupancy.claim(shape):
            return False
        self.actors.append(actor)
        return True

    def cast(self, kind: Kind, place: NDArray[np.float64], heading: float, parked: bool = False) -> bool:
        """Make an actor of a class and place it; return whether it was placed."""
        if not self.camera.sees(place, BODY_SIZES[kind].length / 2 + 2):
            return False
        actor = make_actor(self.rng, kind, float(place[0]), float(place[1]), float(heading), parked)
        return self.place(actor, 0.1 if kind in (Kind.PEDESTRIAN, Kind.PEOPLE) or parked else 0.35)

    def build(
        self, x: float, y: float, length: float, width: float, heading: float, height: float, roof: RoofKind
    ) -> bool:
        """Place a building if it may be visible and its ground is free; return whether it was placed."""
        if not self.camera.sees((x, y), float(np.hypot(length, width)) / 2 + 3 * height):
            return False
        if not self.occupancy.claim(oriented((x, y), length, width, heading)):
            return False
        self.buildings.append(make_building(self.rng, x, y, length, width, heading, height, roof))
        return True

    def plant(self, x: float, y: float, radius: float) -> None:
        """Plant a tree, or a bush if it is small."""
        if self.camera.sees((x, y), radius * 4):
            self.trees.append(make_tree(self.rng, float(x), float(y), float(radius)))

    def clear_trees(self, path: Polyline, distance: float) -> None:
        """Remove every tree closer to a path than `distance` meters: hedges of fields end at a road."""
        self.trees = [
            tree for tree in self.trees if np.hypot(*(path.points - [tree.x, tree.y]).T).min() > distance + tree.radius
        ]

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.rng.random() < probability)
