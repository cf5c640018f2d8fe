"""Bodies on four wheels or three: cars, vans, trucks, buses and tricycles, seen from above."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.geometry import Colour, FloatArray, convex_hull, rectangle, rounded, shifted
from vgtok.data.synthetic.objects import Actor, Brush, dim, mix

_GLASS: Colour = (38, 46, 54)
_SKY_GLASS: Colour = (82, 98, 112)
_TYRE: Colour = (28, 28, 30)
_LAMP: Colour = (236, 236, 226)
_TAIL: Colour = (150, 22, 20)


def _slab(u0: float, u1: float, half: float, taper: float = 0.0) -> FloatArray:
    """A trapezium from u0 (back) to u1 (front), `half` metres to each side, narrower by `taper` at the front."""
    return np.array([[u0, -half], [u1, -half + taper], [u1, half - taper], [u0, half]], np.float64)


def _lights(brush: Brush, length: float, half: float, elevation: float) -> None:
    for side in (-1, 1):
        v = side * (half - 0.24)
        brush.face(rectangle(length / 2 - 0.22, v - 0.16, length / 2 - 0.05, v + 0.16), elevation, _LAMP)
        brush.face(rectangle(-length / 2 + 0.03, v - 0.16, -length / 2 + 0.16, v + 0.16), elevation, _TAIL)


def paint_car(brush: Brush, actor: Actor) -> None:
    """A saloon, an estate or a small SUV: lower body, glass house, roof."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    estate = actor.variant % 3 == 0
    shell = rounded(length, actor.width, 0.45)
    brush.prism(shell, 0.15, 0.85, body, dim(body, 0.5))
    # The bonnet slopes towards the front and the shoulder line catches light: two tones make it read as metal.
    brush.face(_slab(length * 0.2, length * 0.46, half - 0.22, 0.1), 0.85, dim(body, 1.1))
    brush.face(_slab(length * 0.44, length * 0.49, half - 0.3, 0.08), 0.85, dim(body, 0.75))
    _lights(brush, length, half, 0.75)
    tail = -length * (0.47 if estate else 0.36)
    foot = _slab(tail, length * 0.21, half - 0.1, 0.08)
    crown = _slab(tail + (0.3 if estate else 0.75), length * 0.21 - 0.85, half - 0.3, 0.03)
    brush.loft(foot, 0.9, crown, actor.height, _GLASS)
    front = np.array([foot[1], foot[2], crown[2], crown[1]])
    inner = front * [1.0, 0.9] - [0.06, 0.0]
    brush.face(inner, 1.15, mix(_GLASS, _SKY_GLASS, 0.55 + 0.15 * (actor.variant % 4)))
    brush.face(crown, actor.height, dim(body, 1.06))
    brush.face(crown * [0.8, 0.55] - [0.1, 0.0], actor.height, dim(body, 1.16))
    if actor.variant % 5 == 1:
        brush.face(shifted(_slab(-0.35, 0.35, half * 0.45), -0.1), actor.height, _GLASS)
    if actor.variant % 16 == 3:
        brush.prism(_slab(-0.2, 0.1, 0.35), actor.height, actor.height + 0.1, (235, 225, 120))
    for side in (-1, 1):
        brush.face(
            rectangle(length * 0.16, side * (half + 0.09) - 0.09, length * 0.2, side * (half + 0.09) + 0.09),
            1.0,
            body,
        )


def paint_van(brush: Brush, actor: Actor) -> None:
    """A delivery van or minibus: a box with a short snout."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    brush.prism(rounded(length, actor.width, 0.35), 0.2, 1.0, body, dim(body, 0.5))
    _lights(brush, length, half, 0.9)
    foot = _slab(-length * 0.495, length * 0.36, half - 0.03, 0.1)
    crown = _slab(-length * 0.485, length * 0.2, half - 0.14, 0.05)
    brush.loft(foot, 1.0, crown, actor.height, dim(body, 0.5))
    screen = np.array([foot[1], foot[2], crown[2], crown[1]]) * [1.0, 0.92]
    brush.face(screen, 1.5, mix(_GLASS, _SKY_GLASS, 0.4))
    brush.face(crown, actor.height, dim(body, 1.03))
    ribs = 2 + actor.variant % 4
    for u in np.linspace(-length * 0.42, length * 0.1, ribs):
        brush.face(rectangle(u, -half * 0.75, u + 0.09, half * 0.75), actor.height, dim(body, 0.85))
    if actor.variant % 3 == 1:
        brush.face(_slab(-0.9, 0.1, half * 0.5), actor.height, dim(body, 0.72))


def paint_truck(brush: Brush, actor: Actor) -> None:
    """A cab and, by variant, a closed box, a tarpaulin, a loaded tipper or a tank."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    brush.prism(rectangle(-length / 2, -half * 0.8, length / 2 - 0.3, half * 0.8), 0.4, 1.0, (52, 52, 54))
    cab_length = 1.9 if length < 9 else 2.3
    cab = rectangle(length / 2 - cab_length, -half + 0.06, length / 2, half - 0.06)
    cab_roof = rectangle(length / 2 - cab_length, -half + 0.15, length / 2 - 0.35, half - 0.15)
    cab_paint = body if actor.variant % 2 else mix(body, (225, 225, 225), 0.8)
    brush.loft(cab, 0.4, cab_roof, 2.7, dim(cab_paint, 0.55))
    brush.face(rectangle(length / 2 - 0.38, -half + 0.2, length / 2 - 0.06, half - 0.2), 1.9, _GLASS)
    brush.face(cab_roof, 2.7, cab_paint)
    brush.face(
        rectangle(length / 2 - cab_length + 0.2, -half * 0.6, length / 2 - cab_length + 0.9, half * 0.6),
        2.7,
        dim(cab_paint, 0.85),
    )
    bed_front = length / 2 - cab_length - 0.35
    bed = rectangle(-length / 2, -half, bed_front, half)
    style = actor.variant % 4
    if style == 2:
        load: Colour = ((128, 108, 82), (96, 94, 92), (150, 140, 122))[actor.variant % 3]
        brush.prism(bed, 1.0, 2.3, dim(body, 0.9), dim(body, 0.5))
        brush.face(rectangle(-length / 2 + 0.15, -half + 0.15, bed_front - 0.15, half - 0.15), 2.1, dim(load, 0.75))
        middle = (bed_front - length / 2) / 2
        brush.face(shifted(rounded((bed_front + length / 2) * 0.8, actor.width * 0.6, 0.6), middle), 2.3, load)
    elif style == 3 and length > 7.5:
        tank: Colour = (196, 198, 200)
        brush.prism(
            shifted(rounded(bed_front + length / 2, actor.width, 0.8), (bed_front - length / 2) / 2),
            1.0,
            2.6,
            dim(tank, 0.75),
        )
        brush.face(rectangle(-length / 2 + 0.5, -half * 0.55, bed_front - 0.5, half * 0.35), 2.9, tank)
        brush.face(rectangle(-length / 2 + 0.5, -half * 0.25, bed_front - 0.5, half * 0.05), 3.0, (236, 238, 240))
    else:
        brush.prism(bed, 1.0, actor.height, body, dim(body, 0.5))
        brush.face(
            rectangle(-length / 2 + 0.1, -half + 0.1, bed_front - 0.1, half - 0.1),
            actor.height,
            dim(body, 1.06),
        )
        for u in np.arange(-length / 2 + 1.2, bed_front - 0.3, 1.2):
            brush.face(rectangle(u, -half, u + 0.1, half), actor.height, dim(body, 0.9))


def paint_bus(brush: Brush, actor: Actor) -> None:
    """A city bus or a coach: long roof with air conditioning and hatches."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    roof_paint = mix(body, (232, 232, 228), (0.0, 0.55, 0.85)[actor.variant % 3])
    shell = rounded(length, actor.width, 0.3)
    brush.loft(shell, 0.3, shell, 1.2, dim(body, 0.7))
    brush.loft(shell, 1.2, shell, 2.7, _GLASS)
    brush.loft(shell, 2.7, shell, actor.height, dim(body, 0.8))
    brush.face(
        rectangle(length / 2 - 0.3, -half + 0.1, length / 2 - 0.02, half - 0.1),
        2.4,
        mix(_GLASS, _SKY_GLASS, 0.5),
    )
    roof = shifted(rounded(length - 0.25, actor.width - 0.1, 0.35), -0.08)
    brush.face(roof, actor.height, roof_paint)
    brush.face(
        rectangle(-length * 0.48, -half * 0.62, length * 0.46, half * 0.62),
        actor.height,
        dim(roof_paint, 1.08),
    )
    for k, u in enumerate((-0.3, 0.22) if actor.variant % 2 else (0.02, -0.4)):
        box = shifted(rounded(2.4 - 0.5 * k, half * 1.1, 0.2), u * length)
        brush.prism(box, actor.height, actor.height, mix(roof_paint, (120, 122, 124), 0.45))
        brush.face(box * [0.5, 0.6] + [u * length * 0.5, 0.0], actor.height, mix(roof_paint, (90, 92, 94), 0.6))
    for u in (-0.14, 0.36):
        brush.face(rectangle(u * length - 0.35, -0.35, u * length + 0.35, 0.35), actor.height, dim(roof_paint, 0.8))


def paint_tricycle(brush: Brush, actor: Actor) -> None:
    """A cargo tricycle: rider in front, an open bed with a load behind."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    bed = rectangle(-length / 2, -half, length * 0.08, half)
    brush.prism(bed, 0.3, 0.8, dim(body, 0.9), dim(body, 0.5))
    loads: tuple[Colour, ...] = ((70, 62, 54), (150, 118, 76), (60, 88, 120), (96, 98, 100))
    inner = rectangle(-length / 2 + 0.1, -half + 0.1, length * 0.05, half - 0.1)
    brush.face(inner, 0.7, dim(loads[actor.variant % 4], 0.7))
    brush.face(inner * [0.85, 0.7] - [0.08, 0.0], 0.9, loads[actor.variant % 4])
    _paint_front_wheel(brush, actor)


def paint_awning_tricycle(brush: Brush, actor: Actor) -> None:
    """A passenger tricycle under a bright canopy."""
    length, half, body = actor.length, actor.width / 2, actor.colour
    _paint_front_wheel(brush, actor)
    brush.prism(rectangle(-length / 2, -half + 0.1, length * 0.2, half - 0.1), 0.3, 1.0, dim(body, 0.5))
    canopy = shifted(rounded(length * 0.78, actor.width, 0.15), -length * 0.1)
    brush.loft(canopy, 1.5, canopy, actor.height, dim(body, 0.6))
    brush.face(canopy, actor.height, body)
    brush.face(canopy * [0.92, 0.4] - [0.02, 0.0], actor.height, dim(body, 1.15))
    screen = convex_hull(rectangle(length * 0.27, -half * 0.7, length * 0.34, half * 0.7))
    brush.face(screen, 1.4, _SKY_GLASS)


def _paint_front_wheel(brush: Brush, actor: Actor) -> None:
    length, half = actor.length, actor.width / 2
    shirts: tuple[Colour, ...] = ((52, 60, 84), (150, 52, 46), (112, 116, 120), (46, 48, 52))
    brush.face(rectangle(length * 0.2, -0.09, length * 0.5, 0.09), 0.5, _TYRE)
    brush.face(rectangle(length * 0.3, -half * 0.7, length * 0.36, half * 0.7), 0.95, (70, 70, 74))
    brush.prism(shifted(rounded(0.36, 0.5, 0.15), length * 0.15), 0.7, 1.3, shirts[actor.variant % 4])
    brush.face(shifted(rounded(0.24, 0.22, 0.1), length * 0.17), actor.height, (44, 36, 32))
