"""Makes actors: draws size, paint and variant for a class, and knows which painter fits which class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vgtok.data.synthetic import people, ships, vehicles
from vgtok.data.synthetic.geometry import Colour, View
from vgtok.data.synthetic.objects import EXTENTS, Actor, Brush, Kind, Sprite

_CAR: tuple[tuple[float, Colour], ...] = (
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
_VAN: tuple[tuple[float, Colour], ...] = (
    (12, (228, 228, 224)),
    (5, (170, 174, 176)),
    (2, (52, 56, 60)),
    (1, (196, 160, 60)),
    (1, (70, 96, 140)),
)
_TRUCK: tuple[tuple[float, Colour], ...] = (
    (6, (214, 214, 210)),
    (3, (52, 84, 136)),
    (3, (160, 52, 44)),
    (2, (76, 110, 88)),
    (2, (176, 150, 104)),
    (2, (126, 130, 132)),
)
_BUS: tuple[tuple[float, Colour], ...] = (
    (3, (172, 40, 44)),
    (3, (62, 120, 150)),
    (2, (84, 150, 84)),
    (2, (214, 190, 90)),
    (3, (224, 224, 220)),
)
_CLOTHES: tuple[tuple[float, Colour], ...] = (
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
_SMALL: tuple[tuple[float, Colour], ...] = (
    (4, (44, 46, 50)),
    (3, (158, 42, 40)),
    (2, (206, 176, 62)),
    (2, (62, 90, 140)),
    (2, (206, 208, 206)),
)
_CANOPY: tuple[tuple[float, Colour], ...] = (
    (4, (176, 46, 42)),
    (3, (56, 92, 150)),
    (3, (70, 132, 92)),
    (1, (206, 170, 70)),
    (1, (150, 152, 154)),
)
_HULL: tuple[tuple[float, Colour], ...] = (
    (5, (224, 226, 226)),
    (3, (46, 74, 110)),
    (3, (146, 52, 44)),
    (2, (60, 98, 96)),
    (2, (52, 54, 58)),
)

_PAINTS: dict[Kind, tuple[tuple[float, Colour], ...]] = {
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
    Kind.PEDESTRIAN: people.paint_pedestrian,
    Kind.PEOPLE: people.paint_seated,
    Kind.BICYCLE: people.paint_bicycle,
    Kind.CAR: vehicles.paint_car,
    Kind.VAN: vehicles.paint_van,
    Kind.TRUCK: vehicles.paint_truck,
    Kind.TRICYCLE: vehicles.paint_tricycle,
    Kind.AWNING_TRICYCLE: vehicles.paint_awning_tricycle,
    Kind.BUS: vehicles.paint_bus,
    Kind.MOTOR: people.paint_motor,
    Kind.SHIP: ships.paint_ship,
}


def make_actor(rng: np.random.Generator, kind: Kind, x: float, y: float, heading: float, parked: bool = False) -> Actor:
    """An actor of a class at a place, with drawn size and paint; `parked` leaves two-wheelers without a rider."""
    extent = EXTENTS[kind]
    shrink = 1 - extent.spread * rng.random()
    weights, colours = zip(*_PAINTS[kind], strict=True)
    chosen = colours[int(rng.choice(len(colours), p=np.array(weights) / sum(weights)))]
    jitter = rng.normal(0, 5, 3)
    red, green, blue = (float(np.clip(part + shift, 8, 245)) for part, shift in zip(chosen, jitter, strict=True))
    variant = int(rng.integers(0, 240)) * 2 + int(parked)
    if kind not in (Kind.BICYCLE, Kind.MOTOR):
        variant = variant // 2 + int(rng.integers(0, 2))
    width = extent.width * (1 - (1 - shrink) * 0.4)
    height = extent.height * (1 - (1 - shrink) * 0.6)
    return Actor(kind, x, y, heading, extent.length * shrink, width, height, (red, green, blue), variant)


def make_ship(rng: np.random.Generator, x: float, y: float, heading: float, length: float) -> Actor:
    """A ship of a given length; beam and height follow from it."""
    ship = make_actor(rng, Kind.SHIP, x, y, heading)
    width = length * (0.33 if length < 9 else 0.26 if length < 20 else 0.19)
    height = 1.6 if length < 9 else 2.0 + 0.1 * length
    return Actor(Kind.SHIP, x, y, heading, length, width, height, ship.colour, ship.variant)


def paint(actor: Actor, view: View) -> Sprite | None:
    """The actor as it appears in the frame, or None if it lies outside."""
    if not view.sees((actor.x, actor.y), actor.length / 2 + actor.height + 1):
        return None
    brush = Brush(actor, view)
    _PAINTERS[actor.kind](brush, actor)
    return brush.sprite().clipped(view.width, view.height)
