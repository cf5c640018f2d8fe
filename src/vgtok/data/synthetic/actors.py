"""Paint people, vehicles and ships: an actor's size, color and variant in, polygons on its brush out."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.geometry import Color, FloatArray, convex_hull, disc, hull, rectangle, rounded, shifted
from vgtok.data.synthetic.objects import Actor, Brush, dim, mix

_SKIN: Color = (188, 148, 120)
_HAIR: tuple[Color, ...] = ((28, 24, 22), (48, 36, 28), (36, 32, 32), (104, 82, 58), (208, 204, 196))
_TROUSERS: tuple[Color, ...] = ((40, 46, 66), (52, 50, 50), (110, 102, 88), (30, 30, 34), (78, 90, 116))
_CIRCLE = disc((0.0, 0.0), 1.0, 12)
_METAL: Color = (64, 66, 70)


def _ellipse(u: float, v: float, long: float, wide: float) -> FloatArray:
    return np.asarray(_CIRCLE * (long / 2, wide / 2) + (u, v), np.float64)


def _upper_body(brush: Brush, actor: Actor, u: float, hips: float, shoulders: float) -> None:
    """Paint torso, arms and head above the point `u` meters ahead of the center of the actor."""
    shirt, wide = actor.color, 0.86 * min(actor.width, 0.56)
    brush.loft(_ellipse(u - 0.02, 0, 0.26, wide * 0.7), hips, _ellipse(u, 0, 0.28, wide), shoulders, dim(shirt, 0.72))
    brush.face(_ellipse(u, 0, 0.3, wide), shoulders, shirt)
    brush.face(_ellipse(u + 0.03, 0, 0.23, 0.2), shoulders + 0.22, _HAIR[actor.variant % 5])


def paint_pedestrian(brush: Brush, actor: Actor) -> None:
    """Paint a walking person: two legs apart, one arm ahead, the head over the shoulders."""
    stride = actor.length / 2 - 0.14
    trousers = _TROUSERS[actor.variant % 5]
    for side in (-1, 1):
        foot = rectangle(side * stride - 0.14, side * 0.1 - 0.06, side * stride + 0.14, side * 0.1 + 0.06)
        brush.loft(foot, 0.0, _ellipse(0, side * 0.09, 0.18, 0.16), actor.height * 0.48, trousers)
        arm = _ellipse(-side * stride * 0.5, side * 0.22, 0.3, 0.1)
        brush.face(arm, actor.height * 0.6, _SKIN if actor.variant % 2 else dim(actor.color, 0.8))
    if actor.variant % 6 == 0:
        brush.face(_ellipse(-0.2, 0, 0.2, 0.3), actor.height * 0.7, (60, 52, 44))
    _upper_body(brush, actor, 0.0, actor.height * 0.45, actor.height * 0.8)


def paint_seated(brush: Brush, actor: Actor) -> None:
    """Paint a seated person: thighs and shins in front of the torso."""
    back = -actor.length / 2 + 0.2
    trousers = _TROUSERS[actor.variant % 5]
    for side in (-1, 1):
        brush.face(rectangle(back, side * 0.11 - 0.08, actor.length / 2, side * 0.11 + 0.08), 0.5, trousers)
    _upper_body(brush, actor, back, 0.4, actor.height * 0.75)


def _wheels(brush: Brush, length: float, thick: float) -> None:
    for end in (-1, 1):
        u = end * (length / 2 - length * 0.18)
        brush.face(shifted(rounded(length * 0.36, thick, thick / 2), u), 0.35, (30, 30, 32))


def paint_bicycle(brush: Brush, actor: Actor) -> None:
    """Paint a bicycle; even variants have a rider, odd ones are parked."""
    length = actor.length
    _wheels(brush, length, 0.09)
    brush.face(rectangle(-length * 0.3, -0.045, length * 0.32, 0.045), 0.6, actor.color)
    brush.face(rectangle(length * 0.22, -0.28, length * 0.27, 0.28), 1.0, _METAL)
    brush.face(shifted(rounded(0.26, 0.18, 0.08), -length * 0.12), 0.9, (34, 32, 32))
    if actor.variant % 2 == 0:
        _rider(brush, actor, 0.8)


def paint_motor(brush: Brush, actor: Actor) -> None:
    """Paint a scooter or motorcycle; even variants have a rider, odd ones are parked."""
    length = actor.length
    _wheels(brush, length, 0.16)
    brush.prism(shifted(rounded(length * 0.7, 0.34, 0.15), -0.08), 0.3, 0.75, actor.color)
    brush.face(shifted(rounded(length * 0.36, 0.28, 0.1), -length * 0.16), 0.8, (32, 30, 30))
    brush.face(rectangle(length * 0.2, -0.36, length * 0.25, 0.36), 1.0, _METAL)
    brush.face(shifted(rounded(0.3, 0.3, 0.1), length * 0.3), 0.9, dim(actor.color, 1.15))
    if actor.variant % 3 == 0:
        brush.prism(shifted(rounded(0.36, 0.38, 0.06), -length * 0.42), 0.8, 1.1, (58, 60, 62))
    if actor.variant % 2 == 0:
        _rider(brush, actor, 0.75)


def _rider(brush: Brush, actor: Actor, saddle: float) -> None:
    shirts: tuple[Color, ...] = (
        (214, 214, 210),
        (40, 44, 56),
        (150, 44, 44),
        (62, 84, 124),
        (196, 168, 76),
        (70, 72, 74),
    )
    wide = 0.5
    shirt = shirts[(actor.variant // 2) % 6]
    for side in (-1, 1):
        brush.face(
            rectangle(-0.1, side * 0.16 - 0.07, 0.32, side * 0.16 + 0.07),
            saddle,
            _TROUSERS[actor.variant % 5],
        )
        brush.face(rectangle(0.0, side * 0.23 - 0.05, actor.length * 0.24, side * 0.23 + 0.05), 1.1, dim(shirt, 0.8))
    brush.loft(_ellipse(-0.15, 0, 0.3, wide * 0.75), saddle, _ellipse(-0.05, 0, 0.34, wide), 1.35, dim(shirt, 0.7))
    brush.face(_ellipse(-0.05, 0, 0.34, wide), 1.35, shirt)
    helmet: Color = (210, 60, 50) if actor.variant % 10 == 4 else _HAIR[actor.variant % 5]
    brush.face(_ellipse(0.06, 0, 0.27, 0.23), actor.height, helmet)


_GLASS: Color = (38, 46, 54)
_SKY_GLASS: Color = (82, 98, 112)
_TYRE: Color = (28, 28, 30)
_LAMP: Color = (236, 236, 226)
_TAIL: Color = (150, 22, 20)


def _slab(u0: float, u1: float, half: float, taper: float = 0.0) -> FloatArray:
    """Return a trapezoid (4, 2) from u0 (back) to u1 (front), `half` meters to each side, by `taper` less in front."""
    return np.array([[u0, -half], [u1, -half + taper], [u1, half - taper], [u0, half]], np.float64)


def _lights(brush: Brush, length: float, half: float, elevation: float) -> None:
    for side in (-1, 1):
        v = side * (half - 0.24)
        brush.face(rectangle(length / 2 - 0.22, v - 0.16, length / 2 - 0.05, v + 0.16), elevation, _LAMP)
        brush.face(rectangle(-length / 2 + 0.03, v - 0.16, -length / 2 + 0.16, v + 0.16), elevation, _TAIL)


def paint_car(brush: Brush, actor: Actor) -> None:
    """Paint a sedan, a station wagon or a small SUV: lower body, windows, roof."""
    length, half, body = actor.length, actor.width / 2, actor.color
    estate = actor.variant % 3 == 0
    shell = rounded(length, actor.width, 0.45)
    brush.prism(shell, 0.15, 0.85, body, dim(body, 0.5))
    # The hood slopes towards the front and its edge catches light: two tones make it look like metal.
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
    """Paint a delivery van or minibus: a box with a short hood."""
    length, half, body = actor.length, actor.width / 2, actor.color
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
    """Paint a cab and, by variant, a closed box, a tarpaulin, a loaded tipper or a tank."""
    length, half, body = actor.length, actor.width / 2, actor.color
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
        load: Color = ((128, 108, 82), (96, 94, 92), (150, 140, 122))[actor.variant % 3]
        brush.prism(bed, 1.0, 2.3, dim(body, 0.9), dim(body, 0.5))
        brush.face(rectangle(-length / 2 + 0.15, -half + 0.15, bed_front - 0.15, half - 0.15), 2.1, dim(load, 0.75))
        middle = (bed_front - length / 2) / 2
        brush.face(shifted(rounded((bed_front + length / 2) * 0.8, actor.width * 0.6, 0.6), middle), 2.3, load)
    elif style == 3 and length > 7.5:
        tank: Color = (196, 198, 200)
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
    """Paint a city bus or a coach: a long roof with air conditioning and hatches."""
    length, half, body = actor.length, actor.width / 2, actor.color
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
    """Paint a cargo tricycle: rider in front, an open bed with a load behind."""
    length, half, body = actor.length, actor.width / 2, actor.color
    bed = rectangle(-length / 2, -half, length * 0.08, half)
    brush.prism(bed, 0.3, 0.8, dim(body, 0.9), dim(body, 0.5))
    loads: tuple[Color, ...] = ((70, 62, 54), (150, 118, 76), (60, 88, 120), (96, 98, 100))
    inner = rectangle(-length / 2 + 0.1, -half + 0.1, length * 0.05, half - 0.1)
    brush.face(inner, 0.7, dim(loads[actor.variant % 4], 0.7))
    brush.face(inner * [0.85, 0.7] - [0.08, 0.0], 0.9, loads[actor.variant % 4])
    _paint_front_wheel(brush, actor)


def paint_awning_tricycle(brush: Brush, actor: Actor) -> None:
    """Paint a passenger tricycle under a bright canopy."""
    length, half, body = actor.length, actor.width / 2, actor.color
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
    shirts: tuple[Color, ...] = ((52, 60, 84), (150, 52, 46), (112, 116, 120), (46, 48, 52))
    brush.face(rectangle(length * 0.2, -0.09, length * 0.5, 0.09), 0.5, _TYRE)
    brush.face(rectangle(length * 0.3, -half * 0.7, length * 0.36, half * 0.7), 0.95, (70, 70, 74))
    brush.prism(shifted(rounded(0.36, 0.5, 0.15), length * 0.15), 0.7, 1.3, shirts[actor.variant % 4])
    brush.face(shifted(rounded(0.24, 0.22, 0.1), length * 0.17), actor.height, (44, 36, 32))


_CONTAINERS: tuple[Color, ...] = (
    (150, 58, 46),
    (48, 88, 128),
    (70, 112, 84),
    (188, 186, 180),
    (196, 130, 56),
    (96, 98, 102),
)


def paint_ship(brush: Brush, actor: Actor) -> None:
    """Paint the hull, and on it cargo, a wheelhouse or seats, by its length."""
    length, width, paint = actor.length, actor.width, actor.color
    freeboard = min(2.5, 0.4 + length * 0.035)
    brush.prism(hull(length, width), 0.0, freeboard, mix(paint, (228, 228, 224), 0.6), dim(paint, 0.7))
    deck: Color = ((150, 122, 92), (128, 134, 136), (112, 74, 62))[actor.variant % 3]
    brush.face(hull(length, width, 0.06 * width), freeboard, deck if length > 9 else (216, 212, 204))
    if length > 30:
        _cargo(brush, actor, freeboard)
    elif length > 9:
        _fishing(brush, actor, freeboard)
    else:
        screen = rectangle(length * 0.02, -width * 0.3, length * 0.12, width * 0.3)
        brush.face(shifted(rounded(length * 0.42, width * 0.62, 0.3), -length * 0.16), freeboard, (92, 80, 70))
        brush.face(screen, freeboard + 0.4, (48, 62, 72))
        brush.prism(shifted(rounded(length * 0.1, width * 0.3, 0.1), -length * 0.47), 0.3, freeboard, (40, 42, 44))


def _fishing(brush: Brush, actor: Actor, freeboard: float) -> None:
    length, width = actor.length, actor.width
    place = length * (0.12 if actor.variant % 2 else -0.22)
    house = shifted(rounded(length * 0.24, width * 0.62, 0.3), place)
    brush.prism(house, freeboard, freeboard + 2.2, (226, 226, 222), (120, 128, 134))
    brush.face(house * [1, 0.6] * 0.7 + [place * 0.3, 0.0], freeboard + 2.2, dim(actor.color, 0.9))
    for u in (-0.38, 0.3):
        brush.face(rectangle(u * length - 0.5, -width * 0.2, u * length + 0.5, width * 0.2), freeboard, (62, 64, 66))
    brush.face(
        rectangle(-length * 0.42, -0.08, length * 0.3, 0.08),
        min(actor.height, freeboard + 2.6),
        (188, 186, 178),
    )


def _cargo(brush: Brush, actor: Actor, freeboard: float) -> None:
    length, width = actor.length, actor.width
    house = rectangle(-length * 0.46, -width * 0.4, -length * 0.36, width * 0.4)
    columns = max(2, int(width * 0.82 / 2.5))
    row_width = width * 0.82 / columns
    for k, u in enumerate(np.arange(-length * 0.33, length * 0.3 - 6, 6.4)):
        for column in range(columns):
            pick = (actor.variant * 7 + k * 5 + column * 3 + (k * column) % 4) % 9
            if pick >= len(_CONTAINERS):
                continue
            v = -width * 0.41 + column * row_width
            box = rectangle(u, v + 0.08, u + 6.1, v + row_width - 0.08)
            paint = _CONTAINERS[pick]
            brush.prism(box, freeboard, freeboard + 2.5 * (1 + (pick + k) % 2) * 0.7, paint)
            brush.face(rectangle(u + 3.0, v + 0.08, u + 3.12, v + row_width - 0.08), freeboard + 2.0, dim(paint, 0.8))
    brush.prism(house, freeboard, actor.height, (232, 232, 228), (150, 156, 160))
    brush.face(rectangle(-length * 0.43, -width * 0.15, -length * 0.39, width * 0.15), actor.height, actor.color)
