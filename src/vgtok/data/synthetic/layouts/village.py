"""The country: fields, a winding road through a village, dirt tracks and copses."""

from __future__ import annotations

import numpy as np

from ..farmland import dirt_track, field_patchwork, winding
from ..geometry import Colour, Path, disc, oriented
from ..ground import Material
from ..objects import Kind
from ..plots import GRASS, hedge
from ..roads import Road, lay_asphalt, paint_lanes, wear_lanes
from ..roofs import RoofKind
from ..stage import Stage
from ..traffic import CITY, drive, stroll


def lay_village(stage: Stage) -> None:
    """Draw the fields, then the road, then the houses along it."""
    rng = stage.rng
    reach = stage.view.radius + 12
    field_patchwork(stage, -reach, -reach, reach, reach)
    half_height = stage.view.height / stage.view.pixels_per_metre / 2
    path = winding(rng, reach, rng.uniform(-0.3, 0.3) * half_height, 9.0)
    track = winding(rng, reach, rng.uniform(-0.5, 0.5) * reach, 5.0, upright=True)
    dirt_track(stage, track)
    stroll(stage, track, 0.0, 1.0, 0.03)
    stage.clear_trees(track, 2)
    # Homesteads reach 35 m from the road; a field's hedge must not run through a house.
    stage.clear_trees(path, 34)
    road = Road(path, 1, 3.0, 0.0, 0.4, 0.0)
    # A mown verge keeps the furrows off the road.
    stage.ground.fill(path.ribbon(-6.5, 6.5), (112, 118, 68), Material.GRASS)
    tone = rng.uniform(92, 120)
    asphalt: Colour = (tone, tone * 0.99, tone * 0.97)
    _homesteads(stage, path)
    lay_asphalt(stage.ground, [path.ribbon(-road.half_width, road.half_width)], asphalt, kerb=False)
    wear_lanes(stage, road)
    paint_lanes(stage, road, 0, path.length)
    drive(
        stage,
        road,
        [],
        {**CITY, Kind.TRUCK: 12.0, Kind.TRICYCLE: 9.0, Kind.BUS: 2.0},
        14 + 60 * (1 - stage.traffic),
    )
    for side in (-1, 1):
        stroll(stage, path, side * 4.4, 0.8, 0.07)
    for _ in range(int(rng.integers(2, 6))):
        x, y = rng.uniform(-reach, reach, 2)
        wood = rng.uniform(9, 20)
        if np.hypot(*(path.points - [x, y]).T).min() > wood + 38:
            floor = disc((x, y), wood * 1.15, 20) + rng.normal(0, 1.5, (20, 2))
            stage.ground.fill(floor, (74, 86, 50), Material.GRASS)
            for turn, share in rng.uniform((0, 0), (2 * np.pi, 1), (int(wood**2 * 0.17), 2)):
                distance = wood * np.sqrt(share)
                stage.plant(x + distance * np.cos(turn), y + distance * np.sin(turn), rng.uniform(1.8, 4.2))


def _homesteads(stage: Stage, path: Path) -> None:
    """Farms and cottages on both sides of the road: yard, house, barn, garden, hedge."""
    rng = stage.rng
    for side in (-1, 1):
        station = rng.uniform(4, 12)
        while station < path.length - 10:
            wide = float(rng.uniform(17, 28))
            if stage.chance(0.78):
                place, heading = path.at(station + wide / 2, side * 20.0)
                if stage.view.sees(place[0], 30):
                    _homestead(stage, place[0], float(heading[0]) + (0 if side > 0 else np.pi), wide)
            station += wide + rng.uniform(0, 4)


def _homestead(stage: Stage, middle: np.ndarray[tuple[int], np.dtype[np.float64]], heading: float, wide: float) -> None:
    """One plot about `middle`; the road lies towards negative local y."""
    rng, ground = stage.rng, stage.ground
    axes = np.array([[np.cos(heading), np.sin(heading)], [-np.sin(heading), np.cos(heading)]])

    def at(u: float, v: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(middle + np.array([u, v]) @ axes, np.float64)

    ground.fill(oriented(middle, wide, 29, heading), GRASS, Material.GRASS)
    ground.outline(oriented(middle, wide, 29, heading), 0.14, (118, 112, 98))
    yard_u = -wide / 2 + 4
    ground.fill(oriented(at(yard_u, -6.5), 6, 20, heading), (164, 152, 130), Material.GRAVEL)
    roof = RoofKind(int(rng.choice([RoofKind.GABLE, RoofKind.GABLE, RoofKind.HIP])))
    house = at(2.2, rng.uniform(-7, -3))
    turn = 0.0 if stage.chance(0.7) else np.pi / 2
    stage.build(
        house[0],
        house[1],
        rng.uniform(9.5, 13),
        rng.uniform(7, 8.5),
        heading + turn,
        rng.uniform(4, 6.5),
        roof,
    )
    if stage.chance(0.6):
        barn = at(rng.uniform(-2, 2), 9.5)
        stage.build(
            barn[0],
            barn[1],
            rng.uniform(9, 15),
            6.5,
            heading,
            rng.uniform(4, 6),
            RoofKind.METAL if stage.chance(0.5) else RoofKind.GABLE,
        )
    if stage.chance(0.55):
        kind = Kind.CAR if stage.chance(0.7) else Kind.TRUCK if stage.chance(0.3) else Kind.TRICYCLE
        stage.cast(kind, at(yard_u, -8), heading + np.pi / 2, parked=True)
    if stage.chance(0.5 * stage.crowd + 0.2):
        stage.cast(
            Kind.PEOPLE if stage.chance(0.5) else Kind.PEDESTRIAN,
            at(yard_u + 3.4, rng.uniform(-12, 2)),
            rng.uniform(0, 6.3),
        )
    if stage.chance(0.5):
        bed = at(wide / 2 - 4, 7)
        ground.fill(oriented(bed, 5, 8, heading), (112, 92, 70), Material.SOIL)
        for shift in np.arange(-3.4, 3.5, 0.8):
            row = at(wide / 2 - 4, 7 + shift)
            ground.fill(oriented(row, 4.6, 0.35, heading), (84, 108, 56), Material.CROP)
    if stage.chance(0.7):
        left, right = at(-wide / 2, 14), at(wide / 2, 14)
        hedge(stage, (left[0], left[1]), (right[0], right[1]), 0.8)
    for _ in range(int(rng.integers(1, 5))):
        tree = at(rng.uniform(-0.45, 0.45) * wide, rng.uniform(1, 13))
        stage.plant(tree[0], tree[1], rng.uniform(1.3, 3.2))
