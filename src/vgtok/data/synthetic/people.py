"""People on foot, seated, and on two wheels."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.geometry import Colour, FloatArray, disc, rectangle, rounded, shifted
from vgtok.data.synthetic.objects import Actor, Brush, dim

_SKIN: Colour = (188, 148, 120)
_HAIR: tuple[Colour, ...] = ((28, 24, 22), (48, 36, 28), (36, 32, 32), (104, 82, 58), (208, 204, 196))
_TROUSERS: tuple[Colour, ...] = ((40, 46, 66), (52, 50, 50), (110, 102, 88), (30, 30, 34), (78, 90, 116))
_CIRCLE = disc((0.0, 0.0), 1.0, 12)
_METAL: Colour = (64, 66, 70)


def _ellipse(u: float, v: float, long: float, wide: float) -> FloatArray:
    return np.asarray(_CIRCLE * (long / 2, wide / 2) + (u, v), np.float64)


def _upper_body(brush: Brush, actor: Actor, u: float, hips: float, shoulders: float) -> None:
    """Torso, arms and head above the point `u` metres ahead of the actor's middle."""
    shirt, wide = actor.colour, 0.86 * min(actor.width, 0.56)
    brush.loft(_ellipse(u - 0.02, 0, 0.26, wide * 0.7), hips, _ellipse(u, 0, 0.28, wide), shoulders, dim(shirt, 0.72))
    brush.face(_ellipse(u, 0, 0.3, wide), shoulders, shirt)
    brush.face(_ellipse(u + 0.03, 0, 0.23, 0.2), shoulders + 0.22, _HAIR[actor.variant % 5])


def paint_pedestrian(brush: Brush, actor: Actor) -> None:
    """Somebody who walks: two legs apart, one arm ahead, the head over the shoulders."""
    stride = actor.length / 2 - 0.14
    trousers = _TROUSERS[actor.variant % 5]
    for side in (-1, 1):
        foot = rectangle(side * stride - 0.14, side * 0.1 - 0.06, side * stride + 0.14, side * 0.1 + 0.06)
        brush.loft(foot, 0.0, _ellipse(0, side * 0.09, 0.18, 0.16), actor.height * 0.48, trousers)
        arm = _ellipse(-side * stride * 0.5, side * 0.22, 0.3, 0.1)
        brush.face(arm, actor.height * 0.6, _SKIN if actor.variant % 2 else dim(actor.colour, 0.8))
    if actor.variant % 6 == 0:
        brush.face(_ellipse(-0.2, 0, 0.2, 0.3), actor.height * 0.7, (60, 52, 44))
    _upper_body(brush, actor, 0.0, actor.height * 0.45, actor.height * 0.8)


def paint_seated(brush: Brush, actor: Actor) -> None:
    """Somebody who sits: thighs and shins reach forward of the torso."""
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
    """A bicycle; even variants carry their rider, odd ones are parked."""
    length = actor.length
    _wheels(brush, length, 0.09)
    brush.face(rectangle(-length * 0.3, -0.045, length * 0.32, 0.045), 0.6, actor.colour)
    brush.face(rectangle(length * 0.22, -0.28, length * 0.27, 0.28), 1.0, _METAL)
    brush.face(shifted(rounded(0.26, 0.18, 0.08), -length * 0.12), 0.9, (34, 32, 32))
    if actor.variant % 2 == 0:
        _rider(brush, actor, 0.8)


def paint_motor(brush: Brush, actor: Actor) -> None:
    """A scooter or motorcycle; even variants carry their rider, odd ones are parked."""
    length = actor.length
    _wheels(brush, length, 0.16)
    brush.prism(shifted(rounded(length * 0.7, 0.34, 0.15), -0.08), 0.3, 0.75, actor.colour)
    brush.face(shifted(rounded(length * 0.36, 0.28, 0.1), -length * 0.16), 0.8, (32, 30, 30))
    brush.face(rectangle(length * 0.2, -0.36, length * 0.25, 0.36), 1.0, _METAL)
    brush.face(shifted(rounded(0.3, 0.3, 0.1), length * 0.3), 0.9, dim(actor.colour, 1.15))
    if actor.variant % 3 == 0:
        brush.prism(shifted(rounded(0.36, 0.38, 0.06), -length * 0.42), 0.8, 1.1, (58, 60, 62))
    if actor.variant % 2 == 0:
        _rider(brush, actor, 0.75)


def _rider(brush: Brush, actor: Actor, saddle: float) -> None:
    shirts: tuple[Colour, ...] = (
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
    helmet: Colour = (210, 60, 50) if actor.variant % 10 == 4 else _HAIR[actor.variant % 5]
    brush.face(_ellipse(0.06, 0, 0.27, 0.23), actor.height, helmet)
