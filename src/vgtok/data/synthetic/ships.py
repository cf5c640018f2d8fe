"""Hulls on the water: motor boats, fishing boats, barges and container ships."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.geometry import Colour, FloatArray, rectangle, rounded, shifted
from vgtok.data.synthetic.objects import Actor, Brush, dim, mix

_CONTAINERS: tuple[Colour, ...] = (
    (150, 58, 46),
    (48, 88, 128),
    (70, 112, 84),
    (188, 186, 180),
    (196, 130, 56),
    (96, 98, 102),
)


def hull(length: float, width: float, inset: float = 0.0) -> FloatArray:
    """A deck plan with a pointed bow, (M, 2), `inset` metres inside its full size."""
    half_length, half_width = length / 2 - inset, width / 2 - inset
    along = np.linspace(0.45, 1.0, 8)
    bow = np.sqrt(np.clip(1 - ((along - 0.45) / 0.55) ** 1.9, 0, 1))
    right = np.stack([(2 * along - 1) * half_length, bow * half_width], 1)
    stern = np.array([[-half_length * 0.93, half_width * 0.9], [-half_length, half_width * 0.7]])
    side = np.concatenate([stern[::-1], right])
    return np.concatenate([side, side[::-1] * [1, -1]])


def paint_ship(brush: Brush, actor: Actor) -> None:
    """The hull, and on it what its size calls for."""
    length, width, paint = actor.length, actor.width, actor.colour
    freeboard = min(2.5, 0.4 + length * 0.035)
    brush.prism(hull(length, width), 0.0, freeboard, mix(paint, (228, 228, 224), 0.6), dim(paint, 0.7))
    deck: Colour = ((150, 122, 92), (128, 134, 136), (112, 74, 62))[actor.variant % 3]
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
    brush.face(house * [1, 0.6] * 0.7 + [place * 0.3, 0.0], freeboard + 2.2, dim(actor.colour, 0.9))
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
    brush.face(rectangle(-length * 0.43, -width * 0.15, -length * 0.39, width * 0.15), actor.height, actor.colour)
