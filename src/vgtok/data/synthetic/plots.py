"""Areas between roads: parking lots, houses, parks, industrial yards and fields."""

from __future__ import annotations

import numpy as np

from vgtok.data.synthetic.buildings import RoofKind
from vgtok.data.synthetic.geometry import Color, FloatArray, Polyline, disc, oriented, rectangle
from vgtok.data.synthetic.ground import Surface
from vgtok.data.synthetic.objects import Kind
from vgtok.data.synthetic.roads import PARKED, WHITE, lay_asphalt, paint_arrow, pick, rack, stroll
from vgtok.data.synthetic.stage import Stage

GRASS: Color = (96, 106, 66)
_COURTS: tuple[tuple[Color, Color], ...] = (
    ((74, 110, 88), (128, 84, 66)),
    ((62, 96, 132), (84, 118, 92)),
    ((150, 92, 70), (84, 116, 88)),
)


def scatter_trees(stage: Stage, x0: float, y0: float, x1: float, y1: float, per_are: float, radius: float) -> None:
    """Plant trees at random, `per_are` of them per hundred square meters."""
    for _ in range(stage.rng.poisson(max(0.0, (x1 - x0) * (y1 - y0) / 100 * per_are))):
        x, y = stage.rng.uniform(x0, x1), stage.rng.uniform(y0, y1)
        stage.plant(x, y, radius * stage.rng.uniform(0.5, 1.35))


def hedge(stage: Stage, start: tuple[float, float], stop: tuple[float, float], radius: float = 0.7) -> None:
    """Plant a row of bushes that touch."""
    length = float(np.hypot(stop[0] - start[0], stop[1] - start[1]))
    for share in np.linspace(0, 1, max(2, int(length / (radius * 1.15)))):
        x = start[0] + (stop[0] - start[0]) * share + stage.rng.normal(0, 0.07)
        y = start[1] + (stop[1] - start[1]) * share + stage.rng.normal(0, 0.07)
        stage.plant(x, y, radius * stage.rng.uniform(0.85, 1.2))


def parking_lot(stage: Stage, x0: float, y0: float, x1: float, y1: float, asphalt: Color) -> None:
    """Draw double rows of bays with aisles, islands with trees at the ends, and fill the bays."""
    ground, rng = stage.ground, stage.rng
    lay_asphalt(ground, [rectangle(x0, y0, x1, y1)], asphalt)
    deep, aisle, wide = 5.2, 6.4, 2.6
    fill = 0.35 + 0.6 * stage.traffic
    module = 2 * deep + aisle
    bays = int((x1 - x0 - 8) / wide)
    left = (x0 + x1 - bays * wide) / 2
    modules = int((y1 - y0 - 1.5) / module)
    # Spare depth widens the aisles, so that no half of a lot lies empty.
    aisle += min(1.6, (y1 - y0 - 1.5 - modules * module) / max(1, modules))
    module = 2 * deep + aisle
    spare = y1 - y0 - 1.5 - modules * module
    if spare > deep:
        strip = rectangle(x0, y1 - spare, x1, y1)
        ground.outline(strip, 0.3, (170, 168, 160), Surface.PAVING)
        ground.fill(strip, GRASS, Surface.GRASS)
        scatter_trees(stage, x0 + 2, y1 - spare + 2, x1 - 2, y1 - 2, 1.4, 2.4)
    for top in y0 + 0.75 + np.arange(modules) * module:
        for row, facing in ((top, -1), (top + deep + aisle, 1)):
            front = row if facing < 0 else row + deep
            ground.stroke(np.array([[left, front], [left + bays * wide, front]]), 0.12, WHITE, Surface.PAINT)
            for bay in range(bays + 1):
                x = left + bay * wide
                if stage.camera.sees((x, row + deep / 2), 6):
                    ground.stroke(np.array([[x, row], [x, row + deep]]), 0.12, WHITE, Surface.PAINT)
            for bay in range(bays):
                place = np.array([left + (bay + 0.5) * wide, row + deep / 2])
                if not stage.camera.sees(place, 5):
                    continue
                if stage.chance(0.5):
                    ground.soil(oriented((place[0], place[1] + facing), 1.2, 0.9, 0.0), -rng.uniform(4, 22))
                if stage.chance(fill):
                    heading = facing * np.pi / 2 * (1 if stage.chance(0.75) else -1)
                    place += rng.normal(0, (0.08, 0.22))
                    stage.cast(pick(rng, PARKED), place, heading + rng.normal(0, 0.025), parked=True)
            for end in (left - 1.6, left + bays * wide + 1.6):
                island = rectangle(end - 1.2, row + 0.3, end + 1.2, row + deep - 0.3)
                ground.outline(island, 0.3, (170, 168, 160), Surface.PAVING)
                ground.fill(island, GRASS, Surface.GRASS)
                if stage.chance(0.7):
                    stage.plant(end, row + deep / 2, rng.uniform(1.4, 2.6))
        lane_y = top + deep + aisle / 2
        for x in np.arange(left + 6, left + bays * wide, 24):
            paint_arrow(ground, np.array([x, lane_y - 1.5]), np.pi, 0)
            paint_arrow(ground, np.array([x + 4, lane_y + 1.5]), 0.0, 0)
        aisle_path = Polyline([[x0 + 3, lane_y], [x1 - 3, lane_y]])
        stroll(stage, aisle_path, 0.0, 2.6, 0.05)
        for _ in range(rng.poisson((x1 - x0) / 60 * stage.traffic)):
            side = 1 if stage.chance(0.5) else -1
            place = np.array([rng.uniform(x0 + 5, x1 - 5), lane_y + 1.5 * side])
            stage.cast(pick(rng, PARKED), place, 0.0 if side > 0 else np.pi)


def court(stage: Stage, x: float, y: float, long: float, wide: float) -> None:
    """Draw a hard court with its lines, a fence and players; `long` runs along x."""
    ground, rng = stage.ground, stage.rng
    inner, outer = _COURTS[int(rng.integers(len(_COURTS)))]
    ground.fill(oriented((x, y), long, wide, 0), outer, Surface.COURT)
    play = oriented((x, y), long * 0.82, wide * 0.76, 0)
    ground.fill(play, inner, Surface.COURT)
    white: Color = (216, 216, 212)
    ground.outline(play, 0.1, white)
    ground.stroke(np.array([[x, y - wide * 0.38], [x, y + wide * 0.38]]), 0.1, white)
    ground.outline(disc((x, y), min(long, wide) * 0.11), 0.1, white)
    for side in (-1, 1):
        ground.outline(oriented((x + side * long * 0.33, y), long * 0.16, wide * 0.28, 0), 0.1, white)
        arc = disc((x + side * long * 0.25, y), wide * 0.14)
        ground.outline(arc, 0.1, white)
        ground.outline(disc((x + side * long * 0.385, y), 0.3), 0.1, (220, 120, 70))
    ground.outline(oriented((x, y), long, wide, 0), 0.1, (74, 80, 76))
    for _ in range(rng.poisson(7 * stage.crowd)):
        place = np.array([x, y]) + rng.uniform(-0.4, 0.4, 2) * [long, wide]
        stage.cast(Kind.PEDESTRIAN, place, rng.uniform(0, 6.3))


def bench(stage: Stage, x: float, y: float, heading: float) -> None:
    """Draw a park bench, sometimes with people on it."""
    stage.ground.fill(oriented((x, y), 0.5, 1.8, heading), (112, 86, 62), Surface.COURT)
    across = np.array([-np.sin(heading), np.cos(heading)])
    for shift in (-0.55, 0.05, 0.62):
        if stage.chance(0.5 * stage.crowd + 0.15):
            stage.cast(Kind.PEOPLE, np.array([x, y]) + across * shift, heading)


def park(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    """Draw a lawn, crossing paths, benches and trees, and a court if there is room."""
    ground, rng = stage.ground, stage.rng
    ground.fill(rectangle(x0, y0, x1, y1), GRASS, Surface.GRASS)
    gravel: Color = (176, 162, 136)
    roomy = x1 - x0 > 46 and y1 - y0 > 34
    side = 1 if stage.chance(0.5) else -1
    court_x = (x0 + x1) / 2 + side * ((x1 - x0) / 2 - 17)
    middle = np.array([(x0 + x1) / 2, (y0 + y1) / 2]) + rng.normal(0, 3, 2)
    if roomy:
        middle[0] -= side * (x1 - x0) * 0.2
    for end in ((x0, y0), (x1, y0), (x1, y1), (x0, y1)):
        bend = (middle + end) / 2 + rng.normal(0, 3, 2)
        if roomy and (end[0] - middle[0]) * side > 0:
            # Round the court, not across it.
            bend = np.array([middle[0] + side * 6, end[1]])
        turns = np.linspace(0, 1, 14)[:, None]
        curve = (1 - turns) ** 2 * np.array(end) + 2 * turns * (1 - turns) * bend + turns**2 * middle
        path = Polyline(curve)
        ground.stroke(curve, 2.2, gravel, Surface.GRAVEL)
        stroll(stage, path, 0.0, 0.8, 0.06)
        for station in np.arange(5, path.length, 13):
            place, heading = path.at(station, 1.9)
            bench(stage, place[0, 0], place[0, 1], float(heading[0]) - np.pi / 2)
    ground.fill(disc(middle, 4.5, 28), gravel, Surface.GRAVEL)
    ground.fill(disc(middle, 2.0, 24), (104, 124, 66), Surface.GRASS)
    stage.plant(middle[0], middle[1], 1.6)
    if roomy:
        court(stage, court_x, (y0 + y1) / 2, 26, 15)
        for _ in range(int((x1 - x0) * (y1 - y0) / 100 * 1.1)):
            x, y = rng.uniform(x0 + 2, x1 - 2), rng.uniform(y0 + 2, y1 - 2)
            if abs(x - court_x) > 16.5 or abs(y - (y0 + y1) / 2) > 11:
                stage.plant(x, y, rng.uniform(1.2, 3.8))
    else:
        scatter_trees(stage, x0 + 2, y0 + 2, x1 - 2, y1 - 2, 0.9, 2.7)
    for _ in range(rng.poisson((x1 - x0) * (y1 - y0) / 400 * stage.crowd)):
        stage.cast(Kind.PEOPLE, rng.uniform((x0 + 3, y0 + 3), (x1 - 3, y1 - 3)), rng.uniform(0, 6.3))


def houses(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    """Draw detached houses in fenced gardens, driveways with cars."""
    ground, rng = stage.ground, stage.rng
    ground.fill(rectangle(x0, y0, x1, y1), GRASS, Surface.GRASS)
    columns = max(1, round((x1 - x0) / rng.uniform(15, 20)))
    rows = max(1, round((y1 - y0) / rng.uniform(20, 26)))
    wide, deep = (x1 - x0) / columns, (y1 - y0) / rows
    for column in range(columns):
        for row in range(rows):
            left, top = x0 + column * wide, y0 + row * deep
            if not stage.camera.sees((left + wide / 2, top + deep / 2), 30):
                continue
            tone = rng.uniform(0.85, 1.12)
            lawn = (GRASS[0] * tone * rng.uniform(0.95, 1.15), GRASS[1] * tone, GRASS[2] * tone)
            ground.fill(rectangle(left, top, left + wide, top + deep), lawn, Surface.GRASS)
            ground.outline(rectangle(left, top, left + wide, top + deep), 0.12, (120, 114, 100))
            near = -1 if row * 2 < rows else 1
            edge = top if near < 0 else top + deep
            drive_x = left + 2.2
            drive = rectangle(drive_x - 1.6, edge, drive_x + 1.6, edge - near * 9)
            ground.fill(drive, (154, 150, 144), Surface.PAVING)
            if stage.chance(0.6):
                stage.cast(Kind.CAR, np.array([drive_x, edge - near * 4.5]), near * np.pi / 2, parked=True)
            roof = RoofKind.GABLE if stage.chance(0.55) else RoofKind.HIP
            size = rng.uniform(9, 12), rng.uniform(7.5, 9)
            heading = 0.0 if stage.chance(0.7) else np.pi / 2
            x, y = left + wide / 2 + 1.2, top + deep / 2 - near * rng.uniform(-3, 1)
            terrace = rectangle(x - 4, y - near * 3, x + 4, y - near * 7.5)
            ground.fill(terrace, (168, 156, 140), Surface.PAVING)
            stage.build(x, y, *size, heading, rng.uniform(4.5, 7), roof)
            if stage.chance(0.3):
                ground.fill(
                    oriented((left + wide * 0.7, edge - near * deep * 0.85), 4.5, 2.6, 0),
                    (104, 176, 196),
                    Surface.COURT,
                )
            if stage.chance(0.6):
                hedge(stage, (left + 0.6, top + 1), (left + 0.6, top + deep - 1), 0.6)
            for _ in range(int(rng.integers(1, 5))):
                stage.plant(
                    left + rng.uniform(0.5, wide - 0.5),
                    edge - near * rng.uniform(0.55, 0.97) * deep,
                    rng.uniform(0.8, 3.0),
                )


def flats(stage: Stage, x0: float, y0: float, x1: float, y1: float, paving: Color) -> None:
    """Draw apartment blocks around a yard with trees, parked cars and bicycle racks."""
    ground, rng = stage.ground, stage.rng
    ground.fill(rectangle(x0, y0, x1, y1), paving, Surface.PAVING)
    depth = float(min(rng.uniform(11, 15), (y1 - y0) * 0.42))
    for top, facing in ((y0 + 1.5, -1), (y1 - 1.5 - depth, 1)):
        x = x0 + 1.5
        while x < x1 - 8:
            length = float(min(rng.uniform(14, 34), x1 - 1.5 - x))
            if x1 - 1.5 - (x + length) < 9:
                length = x1 - 1.5 - x
            roof = RoofKind(int(rng.choice([0, 0, 0, 1, 2, 3])))
            stage.build(x + length / 2, top + depth / 2, length - 0.4, depth, 0.0, rng.uniform(5, 15), roof)
            x += length + (rng.uniform(2.5, 6) if stage.chance(0.3) else 0)
        if stage.chance(0.7):
            rack(
                stage,
                np.array([rng.uniform(x0 + 3, x1 - 12), top + (depth + 1.5 if facing < 0 else -1.5)]),
                0.0,
                int(rng.integers(4, 10)),
            )
    yard = (x0 + 4, y0 + depth + 4, x1 - 4, y1 - depth - 4)
    if yard[3] - yard[1] > 18 and stage.chance(0.45):
        parking_lot(stage, *yard, (98, 98, 98))
    elif yard[3] - yard[1] > 6:
        ground.fill(rectangle(*yard), GRASS, Surface.GRASS)
        scatter_trees(stage, *yard, 1.8, 2.7)
        scatter_trees(stage, *yard, 1.5, 0.9)
        path = Polyline([[yard[0], (yard[1] + yard[3]) / 2], [yard[2], (yard[1] + yard[3]) / 2 + rng.normal(0, 2)]])
        ground.fill(path.ribbon(-0.8, 0.8), (170, 160, 142), Surface.GRAVEL)
        stroll(stage, path, 0.0, 0.5, 0.08)
        bench(stage, (yard[0] + yard[2]) / 2, yard[1] - 0.8, np.pi / 2)
    stroll(stage, Polyline([[x0, (y0 + y1) / 2], [x1, (y0 + y1) / 2]]), 0.0, (y1 - y0) / 3, 0.05)


def works(stage: Stage, x0: float, y0: float, x1: float, y1: float, paving: Color) -> None:
    """Draw an industrial yard with sheds, stacked goods and trucks."""
    ground, rng = stage.ground, stage.rng
    ground.fill(rectangle(x0, y0, x1, y1), paving, Surface.ASPHALT)
    ground.outline(rectangle(x0 + 0.4, y0 + 0.4, x1 - 0.4, y1 - 0.4), 0.15, (128, 128, 124))
    wide = (x1 - x0) * rng.uniform(0.55, 0.7)
    deep = (y1 - y0) * rng.uniform(0.5, 0.65)
    stage.build(x0 + 4 + wide / 2, y0 + 4 + deep / 2, wide, deep, 0.0, rng.uniform(7, 11), RoofKind.METAL)
    if x1 - x0 - wide > 20:
        stage.build((x0 + wide + x1) / 2 + 4, y0 + 12, (x1 - x0 - wide) * 0.5, 14, 0.0, 6.0, RoofKind.FLAT)
    for _ in range(int(rng.integers(5, 14))):
        x, y = rng.uniform(x0 + 4, x1 - 4), rng.uniform(y0 + deep + 8, max(y0 + deep + 9, y1 - 4))
        tone = rng.uniform(70, 190)
        if stage.occupancy.claim(oriented((x, y), 3, 2.4, 0.0)):
            ground.fill(
                oriented((x, y), rng.uniform(1.2, 2.6), rng.uniform(1, 2.2), 0.0),
                (tone, tone * 0.9, tone * 0.75),
                Surface.GRAVEL,
            )
    for x in np.arange(x0 + 8, x1 - 6, 4.2):
        if stage.chance(0.45 * stage.traffic + 0.1):
            stage.cast(
                pick(rng, {Kind.TRUCK: 5, Kind.VAN: 3, Kind.CAR: 3}),
                np.array([x, y1 - 9.0]),
                np.pi / 2,
                parked=True,
            )
    stroll(stage, Polyline([[x0 + 4, y1 - 16], [x1 - 4, y1 - 16]]), 0.0, 3.0, 0.03)


_CROPS: tuple[tuple[Color, Color, Surface], ...] = (
    ((104, 118, 58), (86, 102, 50), Surface.CROP),
    ((128, 132, 70), (112, 116, 60), Surface.CROP),
    ((178, 160, 104), (162, 144, 92), Surface.CROP),
    ((136, 112, 84), (118, 96, 72), Surface.SOIL),
    ((112, 92, 70), (98, 80, 62), Surface.SOIL),
    ((88, 112, 58), (76, 98, 50), Surface.GRASS),
    ((158, 152, 84), (140, 136, 76), Surface.CROP),
)


def field_patchwork(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    """Split a rectangle until its parts have the size of a field, and draw each one."""
    wide, deep = x1 - x0, y1 - y0
    rng = stage.rng
    if max(wide, deep) > rng.uniform(55, 110):
        share = rng.uniform(0.35, 0.65)
        if wide > deep:
            field_patchwork(stage, x0, y0, x0 + wide * share, y1)
            field_patchwork(stage, x0 + wide * share, y0, x1, y1)
        else:
            field_patchwork(stage, x0, y0, x1, y0 + deep * share)
            field_patchwork(stage, x0, y0 + deep * share, x1, y1)
        return
    if stage.camera.sees(((x0 + x1) / 2, (y0 + y1) / 2), float(np.hypot(wide, deep)) / 2):
        _sow(stage, x0, y0, x1, y1)


def _sow(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    ground, rng = stage.ground, stage.rng
    crop, furrow, surface = _CROPS[int(rng.integers(len(_CROPS)))]
    ground.fill(rectangle(x0, y0, x1, y1), (126, 124, 76), Surface.GRASS)
    edge = 0.8
    x0, y0, x1, y1 = x0 + edge, y0 + edge, x1 - edge, y1 - edge
    ground.fill(rectangle(x0, y0, x1, y1), crop, surface)
    spacing = max(float(rng.choice([0.75, 1.2, 1.8])), 2.6 / stage.camera.pixels_per_meter)
    upright = stage.chance(0.5)
    lean = rng.normal(0, 0.012)
    low, high = (x0, x1) if upright else (y0, y1)
    for k, at in enumerate(np.arange(low + spacing, high - 0.3, spacing)):
        shift = lean * ((y1 - y0) if upright else (x1 - x0))
        other = float(np.clip(at + shift, low + 0.3, high - 0.3))
        line = np.array([[at, y0], [other, y1]] if upright else [[x0, at], [x1, other]])
        ground.stroke(line, spacing * 0.36, furrow)
        if k % 14 == 7 and surface != Surface.GRASS:
            for side in (-0.9, 0.9):
                ground.stroke(line + ([side, 0] if upright else [0, side]), 0.4, (132, 116, 88))
    for _ in range(int(rng.integers(0, 4))):
        # Wet hollows grow darker or thinner crop.
        center = np.array([rng.uniform(x0, x1), rng.uniform(y0, y1)])
        ground.soil(_blob(rng, center, rng.uniform(3, 9), (x0, y0, x1, y1)), rng.uniform(-16, 12))
    if stage.chance(0.35):
        hedge(stage, (x0, y0), (x1, y0) if stage.chance(0.5) else (x0, y1), rng.uniform(0.7, 1.4))


def _blob(
    rng: np.random.Generator, center: FloatArray, radius: float, limits: tuple[float, float, float, float]
) -> FloatArray:
    """Return an irregular closed curve (24, 2) inside x0, y0, x1, y1."""
    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    lengths = np.full(24, radius)
    for lobes in (1, 2, 3):
        lengths += radius * 0.3 / lobes * np.cos(lobes * turns + rng.uniform(0, 6.3))
    points = center + lengths[:, None] * np.stack([np.cos(turns), np.sin(turns)], 1)
    return np.asarray(np.clip(points, limits[:2], limits[2:]), np.float64)


def dirt_track(stage: Stage, path: Polyline) -> None:
    """Draw two wheel ruts with grass between them."""
    ground = stage.ground
    ground.fill(path.ribbon(-1.7, 1.7), (158, 142, 112), Surface.GRAVEL)
    ground.fill(path.ribbon(-0.4, 0.4), (128, 124, 80), Surface.GRASS)
    for offset in (-0.9, 0.9):
        ground.wear(path, offset, 0.6, 10)


def winding(rng: np.random.Generator, reach: float, at: float, swing: float, upright: bool = False) -> Polyline:
    """Return a gently curving path across the scene, about `at` meters off its center."""
    along = np.linspace(-reach, reach, 120)
    sway = at + swing * np.sin(along / rng.uniform(60, 120) + rng.uniform(0, 6.3))
    sway += swing * 0.3 * np.sin(along / rng.uniform(25, 45) + rng.uniform(0, 6.3))
    points = np.stack([sway, along] if upright else [along, sway], 1)
    return Polyline(points)
