"""A motorway: two carriageways in a long curve, a service road beside it, land on either side."""

from __future__ import annotations

import numpy as np

from ..farmland import field_patchwork
from ..geometry import Colour, Path, rectangle
from ..ground import Material
from ..plots import GRASS, works
from ..roads import Road, lay_asphalt, paint_arrow, paint_lanes, wear_lanes
from ..stage import Pole, Stage
from ..traffic import CITY, HIGHWAY, drive, stroll


def lay_highway(stage: Stage) -> None:
    """Draw the land, the banks, the motorway and the service road."""
    rng = stage.rng
    reach = stage.view.radius + 14
    bend = rng.uniform(-1, 1) / rng.uniform(350, 900)
    along = np.linspace(-reach, reach, 90)
    half_height = stage.view.height / stage.view.pixels_per_metre / 2
    shift = rng.uniform(-0.25, 0.25) * half_height
    path = Path(np.stack([along, shift + bend * along**2 / 2], 1))
    lanes = int(rng.integers(2, 5))
    road = Road(path, lanes, 3.6, float(rng.uniform(3.0, 7.0)), 3.0, 0.0)
    if stage.chance(0.6):
        field_patchwork(stage, -reach, -reach, reach, reach)
    else:
        _industry(stage, reach, shift, road.half_width + 26)
    stage.clear_trees(path, road.half_width + 3)
    bank = road.half_width + 12
    stage.ground.fill(path.ribbon(-bank, bank), (104, 114, 66), Material.GRASS)
    service_side = 1 if stage.chance(0.5) else -1
    service_offset = service_side * (road.half_width + 17)
    service_path = Path(path.at(np.linspace(0, path.length, 90), service_offset)[0])
    stage.clear_trees(service_path, 6)
    service = Road(service_path, 1, 3.1, 0.0, 0.4, 0.0)
    stage.ground.fill(service_path.ribbon(-7, 7), (112, 116, 70), Material.GRASS)
    tone = rng.uniform(96, 124)
    asphalt: Colour = (tone, tone, tone)
    lay_asphalt(stage.ground, [service_path.ribbon(-3.6, 3.6)], (tone * 0.92, tone * 0.92, tone * 0.9), kerb=False)
    lay_asphalt(stage.ground, [path.ribbon(-road.half_width, road.half_width)], asphalt, kerb=False)
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
    stage.ground.fill(road.path.ribbon(-half, half), GRASS, Material.GRASS)
    if stage.chance(0.6):
        for station in np.arange(1, road.path.length, 1.5):
            place = road.path.at(station + stage.rng.normal(0, 0.25), stage.rng.normal(0, 0.25))[0][0]
            stage.plant(place[0], place[1], stage.rng.uniform(0.6, 1.1))


def _barriers(stage: Stage, road: Road) -> None:
    """Guard rails on the median and the outer edges, and lamps over the fast lanes."""
    stations = np.linspace(0, road.path.length, 120)
    for offset in (
        -road.half_width - 0.5,
        -road.median / 2 + 0.5,
        road.median / 2 - 0.5,
        road.half_width + 0.5,
    ):
        rail = road.path.at(stations, offset)[0]
        stage.ground.stroke(rail + stage.sun.offset(0.5), 0.16, (70, 72, 66))
        stage.ground.stroke(rail, 0.16, (182, 184, 184), Material.PAINT)
    for station in np.arange(stage.rng.uniform(0, 40), road.path.length, 42):
        place, heading = road.path.at(station)
        if stage.view.sees(place[0], 15):
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
    stage.ground.fill(rectangle(-reach, -reach, reach, reach), (120, 120, 82), Material.GRASS)
    for side in (-1, 1):
        near = shift + side * (margin + 6)
        x = -reach
        while x < reach:
            wide = float(stage.rng.uniform(60, 100))
            edge = near + side * 60
            works(stage, x, min(near, edge), x + wide, max(near, edge), (132, 130, 124))
            x += wide + 6
