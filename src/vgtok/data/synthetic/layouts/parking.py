"""A retail park: a large lot before a large store, a street along its edge."""

from __future__ import annotations

import numpy as np

from ..geometry import Colour, Path, rectangle
from ..ground import Material
from ..objects import Kind
from ..plots import GRASS, hedge, houses, parking_lot, scatter_trees
from ..roads import (
    Road,
    lay_asphalt,
    lay_pavement,
    line_with_lamps,
    line_with_trees,
    paint_lanes,
    paint_zebra,
    wear_lanes,
)
from ..roofs import RoofKind
from ..stage import Stage
from ..traffic import CITY, cross, drive, stroll


def lay_parking(stage: Stage) -> None:
    """Draw the street, the lot, the stores, and gardens behind."""
    rng = stage.rng
    reach = stage.view.radius + 12
    half_height = stage.view.height / stage.view.pixels_per_metre / 2
    tone = rng.uniform(86, 112)
    asphalt: Colour = (tone, tone, tone * 1.01)
    street_y = half_height * rng.uniform(0.45, 0.75)
    road = Road(Path([[-reach, street_y], [reach, street_y]]), int(rng.integers(1, 3)), 3.2, 0.0, 0.6, 3.0)
    stage.ground.fill(rectangle(-reach, -reach, reach, reach), GRASS, Material.GRASS)
    lot_bottom = street_y - road.half_width - road.pavement - 4
    lot_deep = 1.6 + 16.8 * max(2, round(half_height * rng.uniform(1.0, 1.5) / 16.8))
    lot_top = lot_bottom - lot_deep
    x = -reach - rng.uniform(0, 40)
    while x < reach:
        wide = float(rng.uniform(90, 150))
        parking_lot(stage, x, lot_top, x + wide, lot_bottom, asphalt)
        _stores(stage, x, lot_top, wide)
        # The way in joins the street.
        gate = x + wide * rng.uniform(0.3, 0.7)
        lay_asphalt(stage.ground, [rectangle(gate - 4, lot_bottom - 1, gate + 4, street_y)], asphalt, kerb=False)
        hedge(stage, (x, lot_bottom + 1.5), (gate - 6, lot_bottom + 1.5), 0.8)
        hedge(stage, (gate + 6, lot_bottom + 1.5), (x + wide, lot_bottom + 1.5), 0.8)
        x += wide + rng.uniform(6, 10)
    lay_pavement(stage, road, (158, 154, 146))
    lay_asphalt(stage.ground, [road.path.ribbon(-road.half_width, road.half_width)], asphalt)
    wear_lanes(stage, road)
    zebra = reach + rng.uniform(-0.3, 0.3) * stage.view.width / stage.view.pixels_per_metre
    paint_lanes(stage, road, 0, zebra - 4)
    paint_lanes(stage, road, zebra + 4, road.path.length)
    paint_zebra(stage.ground, road, zebra)
    cross(stage, road, zebra, 4)
    drive(stage, road, [], CITY, 8 + 50 * (1 - stage.traffic))
    for side in (-1, 1):
        stroll(stage, road.path, side * (road.half_width + 1.8), 1.0, 0.12)
    line_with_trees(stage, road.path, road.half_width + road.pavement + 1.5, 9.0, 2.4, [])
    line_with_lamps(stage, road, 26.0, [])
    below = street_y + road.half_width + road.pavement + 3
    if below < reach:
        houses(stage, -reach, below, reach, max(below + 20, reach))


def _stores(stage: Stage, x: float, lot_top: float, wide: float) -> None:
    """One or two big flat or metal boxes behind the lot, a delivery yard and trees beyond."""
    rng = stage.rng
    stage.ground.fill(rectangle(x, lot_top - 6, x + wide, lot_top), (170, 164, 154), Material.PAVING)
    stroll(stage, Path([[x, lot_top - 3], [x + wide, lot_top - 3]]), 0.0, 2.0, 0.25)
    at = x + 3
    while at < x + wide - 20:
        length = float(min(rng.uniform(30, 70), x + wide - 3 - at))
        deep = float(rng.uniform(26, 44))
        roof = RoofKind.FLAT if stage.chance(0.6) else RoofKind.METAL
        stage.build(at + length / 2, lot_top - 6 - deep / 2, length, deep, 0.0, rng.uniform(6, 10), roof)
        at += length + rng.uniform(1, 8)
    yard = rectangle(x, lot_top - 64, x + wide, lot_top - 48)
    stage.ground.fill(yard, (120, 119, 116), Material.ASPHALT)
    scatter_trees(stage, x, lot_top - 110, x + wide, lot_top - 66, 1.1, 3.2)
    places = np.arange(x + 5, x + wide - 5, 4.5)
    for place in places:
        if stage.chance(0.2 + 0.3 * stage.traffic):
            stage.cast(
                Kind.TRUCK if stage.chance(0.7) else Kind.VAN,
                np.array([place, lot_top - 56]),
                np.pi / 2,
                parked=True,
            )
