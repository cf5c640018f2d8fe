"""Roads, their markings and trees, and the traffic and people on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vgtok.data.synthetic.geometry import Color, FloatArray, Polyline, disc, oriented, rotate
from vgtok.data.synthetic.ground import Ground, Surface
from vgtok.data.synthetic.objects import BODY_SIZES, Kind
from vgtok.data.synthetic.stage import Pole, Stage

WHITE: Color = (206, 206, 200)
YELLOW: Color = (196, 164, 82)
CURB: Color = (164, 162, 156)


@dataclass(frozen=True)
class Road:
    """A road along a path; traffic keeps right. `verge` lies between the outer lane and the curb."""

    path: Polyline
    lanes: int
    lane_width: float = 3.3
    median: float = 0.0
    verge: float = 0.5
    pavement: float = 3.5

    @property
    def half_width(self) -> float:
        """Meters from the center line to the curb."""
        return self.median / 2 + self.lanes * self.lane_width + self.verge

    def lane_offset(self, lane: int, direction: int) -> float:
        """Return the side offset of a lane; lane 0 is next to the center, direction +1 runs with the path."""
        return direction * (self.median / 2 + (lane + 0.5) * self.lane_width)


def corner(x: float, y: float, toward_x: int, toward_y: int, radius: float) -> FloatArray:
    """Return the asphalt that rounds a street corner at (x, y) whose block lies towards the given signs."""
    turns = np.linspace(0, np.pi / 2, 7)
    arc = radius * np.stack([1 - np.sin(turns), 1 - np.cos(turns)], 1) * [toward_x, toward_y]
    overlap = np.array(
        [
            [-0.5 * toward_x, radius * toward_y],
            [-0.5 * toward_x, -0.5 * toward_y],
            [radius * toward_x, -0.5 * toward_y],
        ]
    )
    return np.asarray(np.concatenate([arc[::-1], overlap]) + np.array([x, y]), np.float64)


def lay_pavement(stage: Stage, road: Road, color: Color, joints: bool = True) -> None:
    """Draw sidewalks on both sides, with the joints of their slabs."""
    ground, inner, outer = stage.ground, road.half_width, road.half_width + road.pavement
    ground.fill(road.path.ribbon(-outer, outer), color, Surface.PAVING)
    if joints and stage.camera.pixels_per_meter > 7:
        line: Color = (color[0] * 0.94, color[1] * 0.94, color[2] * 0.94)
        stations = np.arange(0, road.path.length, 1.6)
        for side in (-1, 1):
            near, _ = road.path.at(stations, side * inner)
            far, _ = road.path.at(stations, side * outer)
            for start, stop in zip(near, far, strict=True):
                if stage.camera.sees(start, 6):
                    ground.stroke(np.stack([start, stop]), 0.05, line)
            middle, _ = road.path.at(np.linspace(0, road.path.length, 40), side * (inner + road.pavement / 2))
            ground.stroke(middle, 0.05, line)


def lay_asphalt(ground: Ground, shapes: Iterable[FloatArray], color: Color, curb: bool = True) -> None:
    """Fill several overlapping shapes as one surface; only the outer border keeps a curb."""
    shapes = list(shapes)
    if curb:
        for shape in shapes:
            ground.outline(shape, 0.5, CURB, Surface.PAVING)
    ground.fill_many(shapes, color, Surface.ASPHALT)


def wear_lanes(stage: Stage, road: Road) -> None:
    """Draw two wheel tracks in every lane, repair patches, cracks and manhole covers."""
    rng, ground = stage.rng, stage.ground
    for direction in (-1, 1):
        for lane in range(road.lanes):
            middle = road.lane_offset(lane, direction)
            ground.wear(road.path, middle, 0.5, -4)
            for wheel in (-0.8, 0.8):
                ground.wear(road.path, middle + wheel, 0.55, rng.uniform(-9, 7))
    for _ in range(int(road.path.length / 30)):
        place, heading = road.path.at(rng.uniform(0, road.path.length), rng.uniform(-0.8, 0.8) * road.half_width)
        if not stage.camera.sees(place[0], 8):
            continue
        pick = rng.random()
        if pick < 0.35:
            patch = oriented(place[0], rng.uniform(1.5, 9), rng.uniform(0.8, 2.4), heading[0])
            ground.fill(patch, _gray(rng.uniform(62, 118)), Surface.ASPHALT)
        elif pick < 0.7:
            steps = np.cumsum(rng.normal((0.9, 0.0), 0.35, (9, 2)), axis=0)
            ground.stroke(place[0] + rotate(steps, heading[0] + rng.choice([0, np.pi / 2])), 0.06, _gray(70))
        else:
            ground.fill(disc(place[0], 0.36), _gray(66), Surface.ASPHALT)
            ground.fill(disc(place[0], 0.26), _gray(92), Surface.ASPHALT)


def _gray(level: float) -> Color:
    return (level, level, level * 0.99)


def paint_line(
    ground: Ground,
    path: Polyline,
    offset: float,
    start: float,
    stop: float,
    color: Color = WHITE,
    width: float = 0.15,
) -> None:
    """Draw a solid line along a path."""
    if stop > start:
        ground.fill(path.ribbon(offset - width / 2, offset + width / 2, start, stop), color, Surface.PAINT)


def paint_dashes(
    stage: Stage, path: Polyline, offset: float, start: float, stop: float, dash: float, gap: float
) -> None:
    """Draw a dashed white line along a path."""
    for station in np.arange(start, stop - dash, dash + gap):
        if stage.camera.sees(path.at(station, offset)[0][0], dash):
            paint_line(stage.ground, path, offset, station, station + dash, WHITE, 0.16)


def paint_lanes(stage: Stage, road: Road, start: float, stop: float, fast: bool = False) -> None:
    """Draw the center line, lane lines and edge lines, from one arc length to another."""
    ground, path = stage.ground, road.path
    if road.median == 0:
        if road.lanes > 1:
            for offset in (-0.14, 0.14):
                paint_line(ground, path, offset, start, stop, YELLOW, 0.13)
        else:
            paint_dashes(stage, path, 0.0, start, stop, 3.0, 4.5)
    else:
        for side in (-1, 1):
            paint_line(ground, path, side * (road.median / 2 + 0.1), start, stop, WHITE if fast else YELLOW, 0.16)
    for direction in (-1, 1):
        for lane in range(1, road.lanes):
            offset = direction * (road.median / 2 + lane * road.lane_width)
            paint_dashes(stage, path, offset, start, stop, 6.0 if fast else 2.5, 9.0 if fast else 4.0)
        if road.verge > 0.8 or fast:
            outer = direction * (road.median / 2 + road.lanes * road.lane_width)
            paint_line(ground, path, outer, start, stop, WHITE, 0.15)


def paint_zebra(ground: Ground, road: Road, station: float, depth: float = 3.6) -> None:
    """Draw a zebra crossing over the whole road, its bars along the traffic."""
    bar, pitch = 0.5, 1.05
    count = int((2 * road.half_width - 0.6) / pitch)
    for offset in (np.arange(count) - (count - 1) / 2) * pitch:
        ground.fill(
            road.path.ribbon(offset - bar / 2, offset + bar / 2, station - depth / 2, station + depth / 2),
            WHITE,
            Surface.PAINT,
        )


def paint_stop(ground: Ground, road: Road, station: float, direction: int) -> None:
    """Draw a stop line across the lanes of one direction."""
    inner = direction * (road.median / 2 + 0.2)
    outer = direction * (road.half_width - road.verge)
    ground.fill(road.path.ribbon(inner, outer, station - 0.2, station + 0.2), WHITE, Surface.PAINT)


def paint_arrow(ground: Ground, place: FloatArray, heading: float, turn: int) -> None:
    """Draw a lane arrow, 5 m long: straight on (0), left (-1) or right (+1)."""
    shaft = np.array([[-2.5, -0.1], [1.0, -0.1], [1.0, 0.1], [-2.5, 0.1]])
    head = np.array([[0.7, -0.42], [2.5, 0.0], [0.7, 0.42]])
    if turn:
        bend = np.array([[0.7, 0.12], [1.2, 0.5], [0.9, 0.5], [0.6, 0.3], [-2.5, 0.12], [-2.5, -0.12], [0.3, -0.12]])
        shaft = bend * [1, turn]
        head = np.array([[0.5, 0.48], [1.6, 0.48], [1.05, 1.2]]) * [1, turn]
    for shape in (shaft, head):
        ground.fill(rotate(shape, heading) + place, WHITE, Surface.PAINT)


def paint_approach(stage: Stage, road: Road, station: float, direction: int) -> None:
    """Draw a stop line at `station` and lane arrows before it for traffic in one direction."""
    paint_stop(stage.ground, road, station, direction)
    for lane in range(road.lanes):
        turn = 0 if road.lanes == 1 else -1 if lane == 0 else 1 if lane == road.lanes - 1 and stage.chance(0.6) else 0
        for back in (8.0, 24.0):
            place, heading = road.path.at(station - direction * back, road.lane_offset(lane, direction))
            paint_arrow(stage.ground, place[0], float(heading[0]) + (0 if direction > 0 else np.pi), turn)


def line_with_trees(
    stage: Stage,
    path: Polyline,
    offset: float,
    spacing: float,
    radius: float,
    skip: Iterable[tuple[float, float]],
) -> None:
    """Plant a row of street trees, except on the arc lengths in `skip`."""
    gaps = list(skip)
    for station in np.arange(stage.rng.uniform(0, spacing), path.length, spacing):
        station += stage.rng.normal(0, 0.5)
        if any(low < station < high for low, high in gaps) or stage.chance(0.12):
            continue
        place = path.at(station, offset)[0][0]
        if stage.camera.sees(place, 10):
            stage.ground.fill(oriented(place, 1.3, 1.3, 0.0), (92, 84, 70), Surface.SOIL)
            stage.plant(place[0], place[1], radius * stage.rng.uniform(0.75, 1.25))


def line_with_lamps(stage: Stage, road: Road, spacing: float, skip: Iterable[tuple[float, float]]) -> None:
    """Place lamp posts on both curbs, arms over the road."""
    gaps = list(skip)
    for side in (-1, 1):
        for station in np.arange(stage.rng.uniform(0, spacing), road.path.length, spacing):
            if any(low < station < high for low, high in gaps):
                continue
            place, heading = road.path.at(station, side * (road.half_width + 0.6))
            if stage.camera.sees(place[0], 15):
                inward = float(heading[0]) - side * np.pi / 2
                stage.poles.append(Pole(float(place[0, 0]), float(place[0, 1]), 8.0, inward, 2.2))


CITY = {
    Kind.CAR: 62.0,
    Kind.VAN: 9.0,
    Kind.TRUCK: 5.0,
    Kind.BUS: 4.5,
    Kind.MOTOR: 9.0,
    Kind.BICYCLE: 5.0,
    Kind.TRICYCLE: 3.0,
    Kind.AWNING_TRICYCLE: 3.0,
}
"""Shares of the classes in a town's traffic."""

HIGHWAY = {Kind.CAR: 66.0, Kind.VAN: 11.0, Kind.TRUCK: 19.0, Kind.BUS: 4.0}
"""Shares of the classes on a motorway."""

PARKED = {Kind.CAR: 88.0, Kind.VAN: 10.0, Kind.TRICYCLE: 1.0, Kind.AWNING_TRICYCLE: 1.0}
"""Shares of the classes in parking bays."""

_TWO_WHEELED = (Kind.MOTOR, Kind.BICYCLE)
_SMALL = (*_TWO_WHEELED, Kind.TRICYCLE, Kind.AWNING_TRICYCLE)


@dataclass(frozen=True)
class Crossing:
    """Where another road crosses: arc length of its middle, half its width, whether this road has green."""

    station: float
    half_width: float
    green: bool

    @property
    def stop_distance(self) -> float:
        """Meters from the middle of the crossing to the stop line."""
        return self.half_width + 8.0

    @property
    def zebra_distance(self) -> float:
        """Meters from the middle of the crossing to the middle of the zebra."""
        return self.half_width + 4.8


def pick(rng: np.random.Generator, shares: dict[Kind, float]) -> Kind:
    """Return a random class, weighted by share."""
    kinds = list(shares)
    weights = np.array([shares[kind] for kind in kinds])
    return kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]


def drive(stage: Stage, road: Road, crossings: Sequence[Crossing], shares: dict[Kind, float], gap: float) -> None:
    """Fill the lanes: moving vehicles about `gap` meters apart, queues before every red stop line."""
    for direction in (-1, 1):
        for lane in range(road.lanes):
            for crossing in crossings:
                if not crossing.green:
                    _queue(stage, road, crossing, lane, direction, shares)
            station = stage.rng.exponential(gap)
            while station < road.path.length:
                kind = pick(stage.rng, shares)
                if not any(
                    not crossing.green and abs(station - crossing.station) < crossing.half_width + 7
                    for crossing in crossings
                ):
                    _put_on_lane(stage, road, station, lane, direction, kind)
                station += BODY_SIZES[kind].length + 3 + stage.rng.exponential(gap)


def _queue(stage: Stage, road: Road, crossing: Crossing, lane: int, direction: int, shares: dict[Kind, float]) -> None:
    station = crossing.station - direction * (crossing.stop_distance + 0.8)
    for _ in range(stage.rng.poisson(5 * stage.traffic)):
        kind = pick(stage.rng, shares)
        length = BODY_SIZES[kind].length
        _put_on_lane(stage, road, station - direction * length / 2, lane, direction, kind)
        station -= direction * (length + stage.rng.uniform(1.0, 3.0))


def _put_on_lane(stage: Stage, road: Road, station: float, lane: int, direction: int, kind: Kind) -> None:
    offset = road.lane_offset(lane, direction) + stage.rng.normal(0, 0.15)
    if kind in _SMALL:
        # Slow riders keep to the curb in any lane.
        outermost = road.lane_offset(road.lanes - 1, direction)
        offset = outermost + direction * stage.rng.uniform(0.7, 1.5 if kind in _TWO_WHEELED else 0.9)
    place, heading = road.path.at(station, offset)
    turned = float(heading[0]) + (0.0 if direction > 0 else np.pi) + stage.rng.normal(0, 0.015)
    stage.cast(kind, place[0], turned)


def turn_through(stage: Stage, x: float, y: float, reach: float, heading: float) -> None:
    """Place one turning vehicle on a junction, between straight on and a right angle."""
    angle = heading + stage.rng.uniform(0.3, 1.2)
    place = np.array([x, y]) + stage.rng.uniform(-reach, reach, 2) * 0.55
    stage.cast(pick(stage.rng, {Kind.CAR: 8, Kind.MOTOR: 2, Kind.VAN: 1}), place, angle)


def park_along(stage: Stage, road: Road, side: int, start: float, stop: float) -> None:
    """Place parked vehicles nose to tail in the verge of a road."""
    if stop <= start:
        return
    offset = side * (road.half_width - road.verge / 2)
    station = start + 3
    while station < stop - 3:
        if stage.chance(0.25 + 0.6 * stage.traffic):
            place, heading = road.path.at(station, offset + stage.rng.normal(0, 0.08))
            flip = 0.0 if side > 0 else np.pi
            stage.cast(pick(stage.rng, PARKED), place[0], float(heading[0]) + flip + stage.rng.normal(0, 0.02), True)
        station += 6.1


def stroll(stage: Stage, path: Polyline, offset: float, spread: float, per_meter: float) -> None:
    """Place people who walk along a path, alone, in pairs or in small groups."""
    for _ in range(stage.rng.poisson(max(0.0, path.length * per_meter * stage.crowd))):
        station, side = stage.rng.uniform(0, path.length), offset + stage.rng.uniform(-spread, spread)
        onward = stage.rng.random() < 0.5
        for _ in range(int(stage.rng.choice([1, 2, 3, 5], p=[0.6, 0.27, 0.09, 0.04]))):
            place, heading = path.at(station + stage.rng.normal(0, 0.7), side + stage.rng.normal(0, 0.5))
            turned = float(heading[0]) + (0.0 if onward else np.pi) + stage.rng.normal(0, 0.25)
            stage.cast(Kind.PEDESTRIAN, place[0], turned)


def cross(stage: Stage, road: Road, station: float, count: float) -> None:
    """Place people and a few bicycles on a zebra crossing."""
    for _ in range(stage.rng.poisson(count * stage.crowd)):
        place, heading = road.path.at(
            station + stage.rng.uniform(-1.6, 1.6), stage.rng.uniform(-1, 1) * road.half_width
        )
        side = np.pi / 2 if stage.chance(0.5) else -np.pi / 2
        kind = pick(stage.rng, {Kind.PEDESTRIAN: 12, Kind.BICYCLE: 1.2, Kind.MOTOR: 0.6})
        stage.cast(kind, place[0], float(heading[0]) + side + stage.rng.normal(0, 0.2))


def rack(stage: Stage, place: np.ndarray[tuple[int], np.dtype[np.float64]], heading: float, count: int) -> None:
    """Place a row of parked bicycles or scooters, side by side along `heading`."""
    kind = Kind.BICYCLE if stage.chance(0.5) else Kind.MOTOR
    step = np.array([np.cos(heading), np.sin(heading)]) * (0.8 if kind == Kind.BICYCLE else 1.05)
    for k in range(count):
        stage.cast(kind, place + step * k, heading + np.pi / 2 + stage.rng.normal(0, 0.08), parked=True)
