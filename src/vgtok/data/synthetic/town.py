"""Town layouts: a street with crossings, and a parking lot."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.buildings import RoofKind
from vgtok.data.synthetic.geometry import Color, Polyline, rectangle
from vgtok.data.synthetic.ground import Surface
from vgtok.data.synthetic.objects import Kind
from vgtok.data.synthetic.plots import GRASS, bench, flats, hedge, houses, park, parking_lot, scatter_trees, works
from vgtok.data.synthetic.roads import (
    CITY,
    Crossing,
    Road,
    corner,
    cross,
    drive,
    lay_asphalt,
    lay_pavement,
    line_with_lamps,
    line_with_trees,
    paint_approach,
    paint_lanes,
    paint_zebra,
    park_along,
    rack,
    stroll,
    turn_through,
    wear_lanes,
)
from vgtok.data.synthetic.stage import Pole, Stage

_CORNER = 5.5


def lay_street(stage: Stage) -> None:
    """Draw the streets, then what is between and on them."""
    rng = stage.rng
    reach = stage.camera.radius + 12
    tone = rng.uniform(84, 112)
    asphalt: Color = (tone, tone, tone * 1.01)
    paving_tone = rng.uniform(140, 168)
    paving: Color = (paving_tone, paving_tone * 0.97, paving_tone * 0.92)
    pulled = (
        rng.uniform(-0.2, 0.2, 2) * np.array([stage.camera.width, stage.camera.height]) / stage.camera.pixels_per_meter
    )
    across = [_street(rng, "x", at, reach, k == 0) for k, at in _positions(rng, pulled[0], reach, 78, 105)]
    along = [_street(rng, "y", at, reach, k == 0) for k, at in _positions(rng, pulled[1], reach, 62, 84)]
    _fill_blocks(stage, across, along, paving)
    for _, road in across + along:
        lay_pavement(stage, road, paving)
    shapes = [road.path.ribbon(-road.half_width, road.half_width) for _, road in across + along]
    for x, vertical in across:
        for y, horizontal in along:
            for sx in (-1, 1):
                for sy in (-1, 1):
                    shapes.append(corner(x + sx * vertical.half_width, y + sy * horizontal.half_width, sx, sy, _CORNER))
    lay_asphalt(stage.ground, shapes, asphalt)
    green = {(i, j): stage.chance(0.5) for i in range(len(across)) for j in range(len(along))}
    for i, (_, road) in enumerate(across):
        others = [(y, other, green[i, j]) for j, (y, other) in enumerate(along)]
        _furnish(stage, road, [Crossing(y + reach, other.half_width, go) for y, other, go in others])
    for j, (_, road) in enumerate(along):
        others = [(x, other, not green[i, j]) for i, (x, other) in enumerate(across)]
        _furnish(stage, road, [Crossing(x + reach, other.half_width, go) for x, other, go in others])
    for i, (x, vertical) in enumerate(across):
        for j, (y, horizontal) in enumerate(along):
            heading = np.pi / 2 if green[i, j] else 0.0
            for _ in range(rng.poisson(3 * stage.traffic)):
                turn_through(stage, x, y, min(vertical.half_width, horizontal.half_width), heading)
            _masts(stage, x, y, vertical, horizontal)


def _positions(
    rng: np.random.Generator, first: float, reach: float, low: float, high: float
) -> list[tuple[int, float]]:
    """Return where parallel streets run: number 0 at `first`, the others on both sides up to `reach`."""
    places = [(0, first)]
    for sign in (-1, 1):
        at, k = first, 0
        while abs(at := at + sign * rng.uniform(low, high)) < reach:
            k += sign
            places.append((k, at))
    return places


def _street(rng: np.random.Generator, axis: str, at: float, reach: float, main: bool) -> tuple[float, Road]:
    ends = [[at, -reach], [at, reach]] if axis == "x" else [[-reach, at], [reach, at]]
    if main:
        median = float(rng.choice([0.0, 0.0, 2.4]))
        road = Road(Polyline(ends), int(rng.integers(2, 4)), 3.2, median, 0.6, float(rng.uniform(4.0, 6.0)))
    else:
        road = Road(Polyline(ends), 1, 3.1, 0.0, float(rng.choice([0.5, 2.3, 2.3])), float(rng.uniform(2.5, 3.8)))
    return at, road


def _fill_blocks(
    stage: Stage, across: list[tuple[float, Road]], along: list[tuple[float, Road]], paving: Color
) -> None:
    reach = stage.camera.radius + 12
    columns, rows = _gaps(across, reach), _gaps(along, reach)
    for x0, x1 in columns:
        for y0, y1 in rows:
            if x1 - x0 < 12 or y1 - y0 < 12:
                continue
            kind = stage.rng.choice(["flats", "houses", "park", "lot", "works"], p=[0.48, 0.2, 0.16, 0.08, 0.08])
            if kind == "flats":
                flats(stage, x0, y0, x1, y1, paving)
            elif kind == "houses":
                houses(stage, x0, y0, x1, y1)
            elif kind == "park":
                park(stage, x0, y0, x1, y1)
            elif kind == "lot":
                parking_lot(stage, x0 + 2, y0 + 2, x1 - 2, y1 - 2, (102, 102, 103))
            else:
                works(stage, x0, y0, x1, y1, (128, 126, 122))


def _gaps(streets: list[tuple[float, Road]], reach: float) -> list[tuple[float, float]]:
    """Return the free intervals between parallel streets and their sidewalks."""
    edges = sorted((at - road.half_width - road.pavement, at + road.half_width + road.pavement) for at, road in streets)
    starts = [-reach - 40] + [high for _, high in edges]
    stops = [low for low, _ in edges] + [reach + 40]
    return list(zip(starts, stops, strict=True))


def _furnish(stage: Stage, road: Road, crossings: list[Crossing]) -> None:
    """Draw markings, median, trees, lamps and traffic of one street."""
    wear_lanes(stage, road)
    crossings = sorted(crossings, key=lambda crossing: crossing.station)
    starts = [0.0] + [crossing.station + crossing.stop_distance for crossing in crossings]
    stops = [crossing.station - crossing.stop_distance for crossing in crossings] + [road.path.length]
    parking = road.verge > 1.5
    for start, stop in zip(starts, stops, strict=True):
        if stop <= start:
            continue
        paint_lanes(stage, road, start, stop)
        if road.median > 1:
            _plant_median(stage, road, start + 3, stop - 3)
        if parking:
            for side in (-1, 1):
                park_along(stage, road, side, start + 6, stop - 6)
    for crossing in crossings:
        for direction in (-1, 1):
            station = crossing.station - direction * crossing.zebra_distance
            paint_zebra(stage.ground, road, station)
            paint_approach(stage, road, crossing.station - direction * crossing.stop_distance, direction)
            cross(stage, road, station, 1.5 if crossing.green else 1.1 * road.half_width)
    clear = [(c.station - c.stop_distance - 2, c.station + c.stop_distance + 2) for c in crossings]
    drive(stage, road, crossings, CITY, 6 + 46 * (1 - stage.traffic) ** 1.5)
    for side in (-1, 1):
        if road.pavement > 3 and stage.chance(0.8):
            radius = stage.rng.uniform(1.8, 3.3)
            line_with_trees(stage, road.path, side * (road.half_width + 1.3), stage.rng.uniform(6, 10), radius, clear)
        stroll(stage, road.path, side * (road.half_width + road.pavement * 0.6), road.pavement * 0.35, 0.16)
        for _ in range(stage.rng.poisson(road.path.length / 60)):
            place, heading = road.path.at(
                stage.rng.uniform(0, road.path.length), side * (road.half_width + road.pavement - 1.1)
            )
            rack(stage, place[0], float(heading[0]), int(stage.rng.integers(3, 9)))
        for _ in range(stage.rng.poisson(road.path.length / 35)):
            place, heading = road.path.at(
                stage.rng.uniform(0, road.path.length), side * (road.half_width + road.pavement - 0.8)
            )
            bench(stage, place[0, 0], place[0, 1], float(heading[0]) - side * np.pi / 2)
        for _ in range(stage.rng.poisson(road.path.length / 70) if road.pavement > 3.5 else 0):
            station = stage.rng.uniform(0, road.path.length)
            place, heading = road.path.at(station, side * (road.half_width + 1.6))
            if not any(low < station < high for low, high in clear):
                long = stage.rng.uniform(2.5, 7)
                stage.build(place[0, 0], place[0, 1], long, 1.7, float(heading[0]), 2.6, RoofKind.METAL)
    line_with_lamps(stage, road, 28.0, clear)


def _plant_median(stage: Stage, road: Road, start: float, stop: float) -> None:
    """Draw a strip of bushes between the two directions."""
    if stop - start < 6:
        return
    half = road.median / 2 - 0.2
    strip = road.path.ribbon(-half, half, start, stop)

    stage.ground.outline(strip, 0.35, (172, 170, 162), Surface.PAVING)
    stage.ground.fill(strip, GRASS, Surface.GRASS)
    for station in np.arange(start + 1, stop - 1, 1.3):
        place = road.path.at(station + stage.rng.normal(0, 0.2), stage.rng.normal(0, 0.2))[0][0]
        stage.plant(place[0], place[1], stage.rng.uniform(0.55, 0.85))


def _masts(stage: Stage, x: float, y: float, vertical: Road, horizontal: Road) -> None:
    """Place signal masts on two opposite corners, arms over the approach."""
    for sign, heading in ((1, np.pi), (-1, 0.0)):
        if vertical.lanes > 1 or horizontal.lanes > 1:
            corner_x = x + sign * (vertical.half_width + 1.2)
            corner_y = y + sign * (horizontal.half_width + 2.5)
            stage.poles.append(Pole(corner_x, corner_y, 6.5, heading, vertical.half_width * 0.8))


def lay_parking(stage: Stage) -> None:
    """Draw the street, the lot, the stores, and gardens behind."""
    rng = stage.rng
    reach = stage.camera.radius + 12
    half_height = stage.camera.height / stage.camera.pixels_per_meter / 2
    tone = rng.uniform(86, 112)
    asphalt: Color = (tone, tone, tone * 1.01)
    street_y = half_height * rng.uniform(0.45, 0.75)
    road = Road(Polyline([[-reach, street_y], [reach, street_y]]), int(rng.integers(1, 3)), 3.2, 0.0, 0.6, 3.0)
    stage.ground.fill(rectangle(-reach, -reach, reach, reach), GRASS, Surface.GRASS)
    lot_bottom = street_y - road.half_width - road.pavement - 4
    lot_deep = 1.6 + 16.8 * max(2, round(half_height * rng.uniform(1.0, 1.5) / 16.8))
    lot_top = lot_bottom - lot_deep
    x = -reach - rng.uniform(0, 40)
    while x < reach:
        wide = float(rng.uniform(90, 150))
        parking_lot(stage, x, lot_top, x + wide, lot_bottom, asphalt)
        _stores(stage, x, lot_top, wide)
        # The entrance joins the street.
        gate = x + wide * rng.uniform(0.3, 0.7)
        lay_asphalt(stage.ground, [rectangle(gate - 4, lot_bottom - 1, gate + 4, street_y)], asphalt, curb=False)
        hedge(stage, (x, lot_bottom + 1.5), (gate - 6, lot_bottom + 1.5), 0.8)
        hedge(stage, (gate + 6, lot_bottom + 1.5), (x + wide, lot_bottom + 1.5), 0.8)
        x += wide + rng.uniform(6, 10)
    lay_pavement(stage, road, (158, 154, 146))
    lay_asphalt(stage.ground, [road.path.ribbon(-road.half_width, road.half_width)], asphalt)
    wear_lanes(stage, road)
    zebra = reach + rng.uniform(-0.3, 0.3) * stage.camera.width / stage.camera.pixels_per_meter
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
    """Place one or two large stores behind the lot, with a delivery yard and trees beyond."""
    rng = stage.rng
    stage.ground.fill(rectangle(x, lot_top - 6, x + wide, lot_top), (170, 164, 154), Surface.PAVING)
    stroll(stage, Polyline([[x, lot_top - 3], [x + wide, lot_top - 3]]), 0.0, 2.0, 0.25)
    at = x + 3
    while at < x + wide - 20:
        length = float(min(rng.uniform(30, 70), x + wide - 3 - at))
        deep = float(rng.uniform(26, 44))
        roof = RoofKind.FLAT if stage.chance(0.6) else RoofKind.METAL
        stage.build(at + length / 2, lot_top - 6 - deep / 2, length, deep, 0.0, rng.uniform(6, 10), roof)
        at += length + rng.uniform(1, 8)
    yard = rectangle(x, lot_top - 64, x + wide, lot_top - 48)
    stage.ground.fill(yard, (120, 119, 116), Surface.ASPHALT)
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
