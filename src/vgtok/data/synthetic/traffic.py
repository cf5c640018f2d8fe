"""Who is where: vehicles along lanes and before stop lines, parked rows, people on pavements and crossings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .geometry import Path
from .objects import EXTENTS, Kind
from .roads import Road
from .stage import Stage

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
        """Metres from the middle of the crossing to the stop line."""
        return self.half_width + 8.0

    @property
    def zebra_distance(self) -> float:
        """Metres from the middle of the crossing to the middle of the zebra."""
        return self.half_width + 4.8


def pick(rng: np.random.Generator, shares: dict[Kind, float]) -> Kind:
    """One class, drawn by share."""
    kinds = list(shares)
    weights = np.array([shares[kind] for kind in kinds])
    return kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]


def drive(stage: Stage, road: Road, crossings: Sequence[Crossing], shares: dict[Kind, float], gap: float) -> None:
    """Fill the lanes: moving vehicles about `gap` metres apart, queues before every red stop line."""
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
                station += EXTENTS[kind].length + 3 + stage.rng.exponential(gap)


def _queue(stage: Stage, road: Road, crossing: Crossing, lane: int, direction: int, shares: dict[Kind, float]) -> None:
    station = crossing.station - direction * (crossing.stop_distance + 0.8)
    for _ in range(stage.rng.poisson(5 * stage.traffic)):
        kind = pick(stage.rng, shares)
        length = EXTENTS[kind].length
        _put_on_lane(stage, road, station - direction * length / 2, lane, direction, kind)
        station -= direction * (length + stage.rng.uniform(1.0, 3.0))


def _put_on_lane(stage: Stage, road: Road, station: float, lane: int, direction: int, kind: Kind) -> None:
    offset = road.lane_offset(lane, direction) + stage.rng.normal(0, 0.15)
    if kind in _SMALL:
        # Slow riders keep to the kerb, whatever lane the draw was for.
        outermost = road.lane_offset(road.lanes - 1, direction)
        offset = outermost + direction * stage.rng.uniform(0.7, 1.5 if kind in _TWO_WHEELED else 0.9)
    place, heading = road.path.at(station, offset)
    turned = float(heading[0]) + (0.0 if direction > 0 else np.pi) + stage.rng.normal(0, 0.015)
    stage.cast(kind, place[0], turned)


def turn_through(stage: Stage, x: float, y: float, reach: float, heading: float) -> None:
    """One vehicle in mid-turn on a junction, somewhere between straight on and a right angle."""
    angle = heading + stage.rng.uniform(0.3, 1.2)
    place = np.array([x, y]) + stage.rng.uniform(-reach, reach, 2) * 0.55
    stage.cast(pick(stage.rng, {Kind.CAR: 8, Kind.MOTOR: 2, Kind.VAN: 1}), place, angle)


def park_along(stage: Stage, road: Road, side: int, start: float, stop: float) -> None:
    """Kerbside parking, nose to tail, in the verge of a road."""
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


def stroll(stage: Stage, path: Path, offset: float, spread: float, per_metre: float) -> None:
    """People who walk along a path, alone, in pairs or in small groups."""
    for _ in range(stage.rng.poisson(max(0.0, path.length * per_metre * stage.crowd))):
        station, side = stage.rng.uniform(0, path.length), offset + stage.rng.uniform(-spread, spread)
        onward = stage.rng.random() < 0.5
        for _ in range(int(stage.rng.choice([1, 2, 3, 5], p=[0.6, 0.27, 0.09, 0.04]))):
            place, heading = path.at(station + stage.rng.normal(0, 0.7), side + stage.rng.normal(0, 0.5))
            turned = float(heading[0]) + (0.0 if onward else np.pi) + stage.rng.normal(0, 0.25)
            stage.cast(Kind.PEDESTRIAN, place[0], turned)


def cross(stage: Stage, road: Road, station: float, count: float) -> None:
    """People (and a few bicycles) on a zebra crossing."""
    for _ in range(stage.rng.poisson(count * stage.crowd)):
        place, heading = road.path.at(
            station + stage.rng.uniform(-1.6, 1.6), stage.rng.uniform(-1, 1) * road.half_width
        )
        side = np.pi / 2 if stage.chance(0.5) else -np.pi / 2
        kind = pick(stage.rng, {Kind.PEDESTRIAN: 12, Kind.BICYCLE: 1.2, Kind.MOTOR: 0.6})
        stage.cast(kind, place[0], float(heading[0]) + side + stage.rng.normal(0, 0.2))


def rack(stage: Stage, place: np.ndarray[tuple[int], np.dtype[np.float64]], heading: float, count: int) -> None:
    """A row of parked bicycles or scooters, side by side along `heading`."""
    kind = Kind.BICYCLE if stage.chance(0.5) else Kind.MOTOR
    step = np.array([np.cos(heading), np.sin(heading)]) * (0.8 if kind == Kind.BICYCLE else 1.05)
    for k in range(count):
        stage.cast(kind, place + step * k, heading + np.pi / 2 + stage.rng.normal(0, 0.08), parked=True)
