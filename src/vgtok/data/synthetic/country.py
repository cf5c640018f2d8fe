"""Country layouts: a highway, and a village with fields."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.buildings import RoofKind
from vgtok.data.synthetic.geometry import Color, Polyline, disc, oriented, rectangle
from vgtok.data.synthetic.ground import Surface
from vgtok.data.synthetic.objects import Kind
from vgtok.data.synthetic.plots import GRASS, dirt_track, field_patchwork, hedge, winding, works
from vgtok.data.synthetic.roads import (
    CITY,
    HIGHWAY,
    Road,
    drive,
    lay_asphalt,
    paint_arrow,
    paint_lanes,
    stroll,
    wear_lanes,
)
from vgtok.data.synthetic.stage import Pole, Stage


def lay_highway(stage: Stage) -> None:
    """Draw the land, the banks, the highway and the service road."""
    rng = stage.rng
    reach = stage.camera.radius + 14
    bend = rng.uniform(-1, 1) / rng.uniform(350, 900)
    along = np.linspace(-reach, reach, 90)
    half_height = stage.camera.height / stage.camera.pixels_per_meter / 2
    shift = rng.uniform(-0.25, 0.25) * half_height
    path = Polyline(np.stack([along, shift + bend * along**2 / 2], 1))
    lanes = int(rng.integers(2, 5))
    road = Road(path, lanes, 3.6, float(rng.uniform(3.0, 7.0)), 3.0, 0.0)
    if stage.chance(0.6):
        field_patchwork(stage, -reach, -reach, reach, reach)
    else:
        _industry(stage, reach, shift, road.half_width + 26)
    stage.clear_trees(path, road.half_width + 3)
    bank = road.half_width + 12
    stage.ground.fill(path.ribbon(-bank, bank), (104, 114, 66), Surface.GRASS)
    service_side = 1 if stage.chance(0.5) else -1
    service_offset = service_side * (road.half_width + 17)
    service_path = Polyline(path.at(np.linspace(0, path.length, 90), service_offset)[0])
    stage.clear_trees(service_path, 6)
    service = Road(service_path, 1, 3.1, 0.0, 0.4, 0.0)
    stage.ground.fill(service_path.ribbon(-7, 7), (112, 116, 70), Surface.GRASS)
    tone = rng.uniform(96, 124)
    asphalt: Color = (tone, tone, tone)
    lay_asphalt(stage.ground, [service_path.ribbon(-3.6, 3.6)], (tone * 0.92, tone * 0.92, tone * 0.9), curb=False)
    lay_asphalt(stage.ground, [path.ribbon(-road.half_width, road.half_width)], asphalt, curb=False)
    _median(stage, road)
    for each, fast in ((road, True), (service, False)):
        wear_lanes(stage, each)
        paint_lanes(stage, each, 0, each.path.length, fast)
    _barriers(stage, road)
    drive(stage, road, [], HIGHWAY, 9 + 60 * (1 - stage.traffic))
    drive(stage, service, [], CITY, 22 + 70 * (1 - stage.traffic))
    stroll(stage, service_path, service_side * 4.4, 0.6, 0.03)
    for station in np.arange(rng.uniform(0, 60), path.length, 90):
        for direction in (-1, 1):
            for lane in range(lanes):
                place, heading = path.at(station, road.lane_offset(lane, direction))
                paint_arrow(stage.ground, place[0], float(heading[0]) + (0 if direction > 0 else np.pi), 0)
    _bank_trees(stage, road, service_offset)


def _median(stage: Stage, road: Road) -> None:
    half = road.median / 2 - 0.4
    stage.ground.fill(road.path.ribbon(-half, half), GRASS, Surface.GRASS)
    if stage.chance(0.6):
        for station in np.arange(1, road.path.length, 1.5):
            place = road.path.at(station + stage.rng.normal(0, 0.25), stage.rng.normal(0, 0.25))[0][0]
            stage.plant(place[0], place[1], stage.rng.uniform(0.6, 1.1))


def _barriers(stage: Stage, road: Road) -> None:
    """Draw guard rails on the median and the outer edges, and lamps over the fast lanes."""
    stations = np.linspace(0, road.path.length, 120)
    for offset in (
        -road.half_width - 0.5,
        -road.median / 2 + 0.5,
        road.median / 2 - 0.5,
        road.half_width + 0.5,
    ):
        rail = road.path.at(stations, offset)[0]
        stage.ground.stroke(rail + stage.sun.offset(0.5), 0.16, (70, 72, 66))
        stage.ground.stroke(rail, 0.16, (182, 184, 184), Surface.PAINT)
    for station in np.arange(stage.rng.uniform(0, 40), road.path.length, 42):
        place, heading = road.path.at(station)
        if stage.camera.sees(place[0], 15):
            for side in (-1, 1):
                turn = float(heading[0]) + side * np.pi / 2
                stage.poles.append(Pole(float(place[0, 0]), float(place[0, 1]), 10.0, turn, 3.4))


def _bank_trees(stage: Stage, road: Road, service_offset: float) -> None:
    rng = stage.rng
    for side in (-1, 1):
        clear = service_offset * side > 0
        for station in np.arange(0, road.path.length, 4.0):
            if stage.chance(0.4):
                continue
            offset = road.half_width + (rng.uniform(4, 10) if clear else rng.uniform(5, 16))
            place = road.path.at(station, side * offset)[0][0]
            stage.plant(place[0], place[1], rng.choice([rng.uniform(0.7, 1.4), rng.uniform(1.5, 3.4)]))


def _industry(stage: Stage, reach: float, shift: float, margin: float) -> None:
    stage.ground.fill(rectangle(-reach, -reach, reach, reach), (120, 120, 82), Surface.GRASS)
    for side in (-1, 1):
        near = shift + side * (margin + 6)
        x = -reach
        while x < reach:
            wide = float(stage.rng.uniform(60, 100))
            edge = near + side * 60
            works(stage, x, min(near, edge), x + wide, max(near, edge), (132, 130, 124))
            x += wide + 6


def lay_village(stage: Stage) -> None:
    """Draw the fields, then the road, then the houses along it."""
    rng = stage.rng
    reach = stage.camera.radius + 12
    field_patchwork(stage, -reach, -reach, reach, reach)
    half_height = stage.camera.height / stage.camera.pixels_per_meter / 2
    path = winding(rng, reach, rng.uniform(-0.3, 0.3) * half_height, 9.0)
    track = winding(rng, reach, rng.uniform(-0.5, 0.5) * reach, 5.0, upright=True)
    dirt_track(stage, track)
    stroll(stage, track, 0.0, 1.0, 0.03)
    stage.clear_trees(track, 2)
    # Homesteads reach 35 m from the road; a field's hedge must not run through a house.
    stage.clear_trees(path, 34)
    road = Road(path, 1, 3.0, 0.0, 0.4, 0.0)
    # A mown verge keeps the furrows off the road.
    stage.ground.fill(path.ribbon(-6.5, 6.5), (112, 118, 68), Surface.GRASS)
    tone = rng.uniform(92, 120)
    asphalt: Color = (tone, tone * 0.99, tone * 0.97)
    _homesteads(stage, path)
    lay_asphalt(stage.ground, [path.ribbon(-road.half_width, road.half_width)], asphalt, curb=False)
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
            stage.ground.fill(floor, (74, 86, 50), Surface.GRASS)
            for turn, share in rng.uniform((0, 0), (2 * np.pi, 1), (int(wood**2 * 0.17), 2)):
                distance = wood * np.sqrt(share)
                stage.plant(x + distance * np.cos(turn), y + distance * np.sin(turn), rng.uniform(1.8, 4.2))


def _homesteads(stage: Stage, path: Polyline) -> None:
    """Draw farms and cottages on both sides of the road: yard, house, barn, garden, hedge."""
    rng = stage.rng
    for side in (-1, 1):
        station = rng.uniform(4, 12)
        while station < path.length - 10:
            wide = float(rng.uniform(17, 28))
            if stage.chance(0.78):
                place, heading = path.at(station + wide / 2, side * 20.0)
                if stage.camera.sees(place[0], 30):
                    _homestead(stage, place[0], float(heading[0]) + (0 if side > 0 else np.pi), wide)
            station += wide + rng.uniform(0, 4)


def _homestead(stage: Stage, middle: np.ndarray[tuple[int], np.dtype[np.float64]], heading: float, wide: float) -> None:
    """Draw one plot around `middle`; the road lies towards negative local y."""
    rng, ground = stage.rng, stage.ground
    axes = np.array([[np.cos(heading), np.sin(heading)], [-np.sin(heading), np.cos(heading)]])

    def at(u: float, v: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(middle + np.array([u, v]) @ axes, np.float64)

    ground.fill(oriented(middle, wide, 29, heading), GRASS, Surface.GRASS)
    ground.outline(oriented(middle, wide, 29, heading), 0.14, (118, 112, 98))
    yard_u = -wide / 2 + 4
    ground.fill(oriented(at(yard_u, -6.5), 6, 20, heading), (164, 152, 130), Surface.GRAVEL)
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
        ground.fill(oriented(bed, 5, 8, heading), (112, 92, 70), Surface.SOIL)
        for shift in np.arange(-3.4, 3.5, 0.8):
            row = at(wide / 2 - 4, 7 + shift)
            ground.fill(oriented(row, 4.6, 0.35, heading), (84, 108, 56), Surface.CROP)
    if stage.chance(0.7):
        left, right = at(-wide / 2, 14), at(wide / 2, 14)
        hedge(stage, (left[0], left[1]), (right[0], right[1]), 0.8)
    for _ in range(int(rng.integers(1, 5))):
        tree = at(rng.uniform(-0.45, 0.45) * wide, rng.uniform(1, 13))
        stage.plant(tree[0], tree[1], rng.uniform(1.3, 3.2))
