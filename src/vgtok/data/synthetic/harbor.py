"""Harbor layout: a quay with containers, sheds and parking, ships along it and on the water."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.geometry import Color, FloatArray, Polyline, convex_hull, oriented, rectangle, rotate
from vgtok.data.synthetic.ground import Surface
from vgtok.data.synthetic.objects import Actor, Kind
from vgtok.data.synthetic.plots import parking_lot, works
from vgtok.data.synthetic.roads import (
    CITY,
    WHITE,
    YELLOW,
    Road,
    drive,
    lay_asphalt,
    line_with_lamps,
    paint_lanes,
    stroll,
    wear_lanes,
)
from vgtok.data.synthetic.stage import Pole, Stage, make_ship

_CONTAINERS: tuple[Color, ...] = (
    (148, 60, 48),
    (52, 90, 130),
    (72, 112, 86),
    (190, 188, 182),
    (198, 134, 62),
    (98, 100, 104),
)


def lay_harbor(stage: Stage) -> None:
    """Draw the water, then the land behind the quay wall."""
    rng = stage.rng
    reach = stage.camera.radius + 14
    half_height = stage.camera.height / stage.camera.pixels_per_meter / 2
    quay = half_height * (1 - 2 * stage.water)
    tone = rng.uniform(0.85, 1.15)
    sea: Color = (46 * tone, 72 * tone, 80 * tone)
    stage.ground.fill(rectangle(-reach, -reach, reach, reach), sea, Surface.WATER)
    _ripples(stage, quay, reach, sea)
    _sail(stage, quay + 26, reach, sea)
    # The land comes after the wakes, which may run up to the wall.
    _land(stage, quay, reach)
    _cranes(stage, quay, reach)
    _pontoons(stage, quay, reach)
    _moor(stage, quay, reach)


def _ripples(stage: Stage, quay: float, reach: float, sea: Color) -> None:
    """Draw short crests and troughs across one wind direction."""
    rng = stage.rng
    wind = rng.uniform(0, np.pi)
    area = 2 * reach * max(0.0, reach - quay)
    for _ in range(int(min(9000, area * 0.22))):
        x, y = rng.uniform(-reach, reach), rng.uniform(quay, reach)
        if stage.camera.sees((x, y), 1):
            tone = 1 + rng.choice([-1, 1]) * rng.uniform(0.03, 0.11)
            color = (sea[0] * tone, sea[1] * tone, sea[2] * tone)
            crest = rotate(
                np.array([[-1.0, 0.0], [0.0, 0.12], [1.0, 0.0]]) * rng.uniform(0.4, 1.6),
                wind + rng.normal(0, 0.25),
            )
            stage.ground.stroke(crest + np.array([x, y]), 0.1, color)


def _land(stage: Stage, quay: float, reach: float) -> None:
    rng, ground = stage.rng, stage.ground
    concrete: Color = (152, 149, 142)
    ground.fill(rectangle(-reach, -reach, reach, quay), concrete, Surface.PAVING)
    for x in np.arange(-reach, reach, 8.0):
        ground.stroke(np.array([[x, quay - 16], [x, quay]]), 0.06, (132, 130, 124))
    for back in (0.0, 8.0):
        ground.stroke(np.array([[-reach, quay - back], [reach, quay - back]]), 0.06, (132, 130, 124))
    # Fenders and the wet foot of the wall.
    ground.stroke(np.array([[-reach, quay + 0.2], [reach, quay + 0.2]]), 0.7, (62, 62, 60), Surface.PAVING)
    ground.stroke(np.array([[-reach, quay - 0.4], [reach, quay - 0.4]]), 0.45, YELLOW, Surface.PAINT)
    for x in np.arange(-reach + 3, reach, 6.0):
        ground.fill(oriented((x, quay + 0.5), 0.9, 0.7, 0), (28, 28, 30), Surface.PAVING)
        ground.fill(oriented((x + 3, quay - 1.4), 0.5, 0.5, 0), (52, 52, 54), Surface.PAVING)
    for rail in (3.5, 13.5):
        ground.stroke(np.array([[-reach, quay - rail], [reach, quay - rail]]), 0.12, (96, 90, 84))
    stroll(stage, Polyline([[-reach, quay - 4], [reach, quay - 4]]), 0.0, 3.0, 0.10)
    _container_yard(stage, quay - 33, quay - 17, reach)
    road = Road(Polyline([[-reach, quay - 41.5], [reach, quay - 41.5]]), 1, 3.4, 0.0, 0.6, 2.5)
    lay_asphalt(ground, [road.path.ribbon(-road.half_width, road.half_width)], (96, 96, 97))
    wear_lanes(stage, road)
    paint_lanes(stage, road, 0, road.path.length)
    drive(stage, road, [], {**CITY, Kind.TRUCK: 34.0, Kind.VAN: 14.0}, 10 + 60 * (1 - stage.traffic))
    line_with_lamps(stage, road, 30.0, [])
    stroll(stage, road.path, -6.0, 0.8, 0.05)
    x = -reach
    while x < reach:
        wide = float(rng.uniform(50, 90))
        if stage.chance(0.4):
            parking_lot(stage, x, quay - 88, x + wide - 3, quay - 50, (102, 102, 102))
        else:
            works(stage, x, quay - 104, x + wide - 3, quay - 50, (130, 128, 122))
        x += wide


def _container_yard(stage: Stage, top: float, bottom: float, reach: float) -> None:
    """Draw stacks of containers in painted rows, with trucks between them."""
    rng = stage.rng
    for x in np.arange(-reach, reach, 15.0):
        stage.ground.outline(rectangle(x + 0.6, top, x + 13.4, bottom), 0.12, WHITE)
        if stage.chance(0.35):
            for _ in range(rng.poisson(1.2 * stage.traffic)):
                kind = Kind.TRUCK if stage.chance(0.6) else Kind.CAR
                stage.cast(kind, np.array([x + rng.uniform(3, 11), rng.uniform(top + 7, bottom - 7)]), np.pi / 2)
            continue
        for row in np.arange(top + 1.6, bottom - 1, 2.7):
            for column in (x + 3.8, x + 10.1):
                if stage.chance(0.2) or not stage.camera.sees((column, row), 6):
                    continue
                stage.occupancy.claim(oriented((column, row), 6.1, 2.4, 0.0))
                _container(stage, column, row, int(rng.integers(1, 4)))


def _container(stage: Stage, x: float, y: float, tiers: int) -> None:
    """Draw a stack of containers on the ground: sides by perspective, ribbed lids."""
    camera, ground = stage.camera, stage.ground
    paint = _CONTAINERS[int(stage.rng.integers(len(_CONTAINERS)))]
    tone = stage.rng.uniform(0.85, 1.1)
    color: Color = (paint[0] * tone, paint[1] * tone, paint[2] * tone)
    foot = oriented((x, y), 6.1, 2.44, 0.0)
    grow = camera.altitude / (camera.altitude - 2.6 * tiers)
    lid = foot * grow
    shadow = convex_hull(foot, foot + stage.sun.offset(2.6 * tiers * 0.6))
    ground.fill(shadow, (74, 74, 78), Surface.PAVING)
    ground.fill(convex_hull(foot, lid), (color[0] * 0.55, color[1] * 0.55, color[2] * 0.55), Surface.COURT)
    ground.fill(lid, color, Surface.COURT)
    for u in np.arange(-2.6, 2.7, 0.65):
        rib: FloatArray = np.array([[x + u, y - 1.2], [x + u, y + 1.2]]) * grow
        ground.stroke(rib, 0.06, (color[0] * 0.86, color[1] * 0.86, color[2] * 0.86))


def _cranes(stage: Stage, quay: float, reach: float) -> None:
    """Place quay cranes: four legs on the rails, two beams from the stacks out over the water."""
    paint: Color = ((188, 150, 62), (70, 104, 150), (164, 74, 58))[int(stage.rng.integers(3))]
    for x in np.arange(-reach + stage.rng.uniform(10, 50), reach, stage.rng.uniform(60, 110)):
        for side in (-3.2, 3.2):
            for rail in (3.5, 13.5):
                stage.ground.fill(oriented((x + side, quay - rail), 2.6, 1.2, 0.0), (70, 70, 72), Surface.PAVING)
                stage.occupancy.claim(oriented((x + side, quay - rail), 2.6, 1.2, 0.0))
                stage.poles.append(Pole(x + side, quay - rail, 14.0, 0.0 if side < 0 else np.pi, 6.4, 0.7, paint))
            stage.poles.append(Pole(x + side * 0.6, quay - 20.0, 14.0, np.pi / 2, 32.0, 0.9, paint))


def _moor(stage: Stage, quay: float, reach: float) -> None:
    """Place ships moored along the quay wall."""
    rng = stage.rng
    x = -reach + rng.uniform(0, 20)
    while x < reach:
        length = float(rng.choice([rng.uniform(11, 18), rng.uniform(18, 30), rng.uniform(34, 60)], p=[0.4, 0.3, 0.3]))
        if stage.chance(0.55):
            ship = make_ship(rng, x + length / 2, 0.0, 0.0 if stage.chance(0.5) else np.pi, length)
            y = quay + 1.3 + ship.width / 2
            if stage.place(make_ship(rng, ship.x, y, ship.heading, length), 1.0):
                for end in (-0.42, 0.42):
                    line = np.array([[ship.x + end * length, quay + 1.5], [ship.x + end * length * 1.15, quay - 1.4]])
                    stage.ground.stroke(line, 0.08, (190, 184, 166))
        x += length + rng.uniform(4, 16)


def _pontoons(stage: Stage, quay: float, reach: float) -> None:
    """Draw jetties with small boats on both sides."""
    rng = stage.rng
    for x in np.arange(-reach + rng.uniform(0, 60), reach, rng.uniform(70, 120)):
        if not stage.chance(0.7):
            continue
        long = float(rng.uniform(20, 42))
        jetty = rectangle(x - 1.1, quay, x + 1.1, quay + long)
        stage.occupancy.claim(rectangle(x - 8, quay, x + 8, quay + 1))
        stage.ground.fill(jetty + stage.sun.offset(0.8), (30, 44, 50), Surface.WATER)
        stage.ground.fill(jetty, (158, 138, 112), Surface.COURT)
        for y in np.arange(quay + 0.6, quay + long, 0.6):
            stage.ground.stroke(np.array([[x - 1.1, y], [x + 1.1, y]]), 0.05, (132, 114, 92))
        stroll(stage, Polyline([[x, quay], [x, quay + long]]), 0.0, 0.6, 0.06)
        for y in np.arange(quay + 5, quay + long, 3.6):
            for side in (-1, 1):
                if stage.chance(0.7):
                    length = float(rng.uniform(4.8, 8.5))
                    place = (x + side * (1.5 + length / 2), y)
                    stage.place(
                        make_ship(rng, *place, (0.0 if side > 0 else np.pi) + rng.normal(0, 0.04), length),
                        0.2,
                    )


def _sail(stage: Stage, start: float, reach: float, sea: Color) -> None:
    """Place moving ships, each with its wake."""
    rng = stage.rng
    area = 2 * reach * max(0.0, reach - start)
    for _ in range(rng.poisson(area / 2600 * (0.4 + stage.traffic))):
        length = float(rng.choice([rng.uniform(5, 9), rng.uniform(10, 22), rng.uniform(26, 50)], p=[0.5, 0.35, 0.15]))
        x, y = rng.uniform(-reach, reach), rng.uniform(start, reach)
        ship = make_ship(rng, x, y, rng.normal(0, 0.5) + (0 if stage.chance(0.5) else np.pi), length)
        if ship.y - length / 2 > start - 8 and stage.place(ship, 4.0):
            _wake(stage, ship, sea)


def _wake(stage: Stage, ship: Actor, sea: Color) -> None:
    """Draw foam behind a ship and the two arms of its bow wave."""
    rng = stage.rng
    length, width = ship.length, ship.width
    run = length * rng.uniform(2.0, 3.2)

    def put(shape: FloatArray) -> FloatArray:
        return np.asarray(rotate(shape, ship.heading) + np.array([ship.x, ship.y]), np.float64)

    # From the faint far end to the bright near one: soft bands first, flecks of foam on top.
    for share in np.linspace(1.0, 0.0, 9):
        near, far = -length * 0.4 - run * share * 0.9, -length * 0.4 - run * (share * 0.9 + 0.14)
        half = width * (0.3 + 0.35 * share)
        stage.ground.soil(put(rectangle(far, -half, near, half)), 8 + 52 * (1 - share) ** 1.5)
        for side in (-1, 1):
            along = length * 0.45 - (length + run * 0.8) * share
            out = side * (width * 0.25 + (length * 0.45 - along) * 0.24)
            arm = oriented((along, out), (length + run) * 0.11, 0.5 + 0.8 * share, -side * 0.24)
            stage.ground.soil(put(arm), 6 + 40 * (1 - share))
    count = int(60 + length * 14)
    for share in np.sort(rng.random(count))[::-1] ** 1.6:
        center = np.array([-length * 0.43 - run * share * 0.8, rng.normal(0, width * (0.13 + 0.16 * share))])
        _foam(
            stage,
            put(oriented(center, rng.uniform(0.2, 0.9), rng.uniform(0.1, 0.35), rng.normal(0, 0.4))),
            sea,
            (1 - share) ** 1.5,
        )
    for share in rng.random(count // 2) ** 1.5:
        along = length * 0.47 - length * 1.2 * share
        out = (width * 0.2 + (length * 0.47 - along) * 0.24 + rng.normal(0, 0.15)) * rng.choice([-1, 1])
        _foam(stage, put(oriented((along, out), rng.uniform(0.3, 1.2), 0.18, 0.0)), sea, 0.8 * (1 - share))


def _foam(stage: Stage, shape: FloatArray, sea: Color, strength: float) -> None:
    fade = float(strength * stage.rng.uniform(0.2, 0.75))
    red, green, blue = (water + (foam - water) * fade for water, foam in zip(sea, (186, 200, 202), strict=True))
    stage.ground.fill(shape, (red, green, blue), Surface.WATER)
