"""Farmland: fields of differing crop with furrows, tramlines and edges, and the tracks between them."""

from __future__ import annotations

import numpy as np

from .geometry import Colour, FloatArray, Path, rectangle
from .ground import Material
from .plots import hedge
from .stage import Stage

_CROPS: tuple[tuple[Colour, Colour, Material], ...] = (
    ((104, 118, 58), (86, 102, 50), Material.CROP),
    ((128, 132, 70), (112, 116, 60), Material.CROP),
    ((178, 160, 104), (162, 144, 92), Material.CROP),
    ((136, 112, 84), (118, 96, 72), Material.SOIL),
    ((112, 92, 70), (98, 80, 62), Material.SOIL),
    ((88, 112, 58), (76, 98, 50), Material.GRASS),
    ((158, 152, 84), (140, 136, 76), Material.CROP),
)


def field_patchwork(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    """Cut a rectangle into fields until they are a field's size, and sow each one."""
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
    if stage.view.sees(((x0 + x1) / 2, (y0 + y1) / 2), float(np.hypot(wide, deep)) / 2):
        _sow(stage, x0, y0, x1, y1)


def _sow(stage: Stage, x0: float, y0: float, x1: float, y1: float) -> None:
    ground, rng = stage.ground, stage.rng
    crop, furrow, material = _CROPS[int(rng.integers(len(_CROPS)))]
    ground.fill(rectangle(x0, y0, x1, y1), (126, 124, 76), Material.GRASS)
    edge = 0.8
    x0, y0, x1, y1 = x0 + edge, y0 + edge, x1 - edge, y1 - edge
    ground.fill(rectangle(x0, y0, x1, y1), crop, material)
    spacing = max(float(rng.choice([0.75, 1.2, 1.8])), 2.6 / stage.view.pixels_per_metre)
    upright = stage.chance(0.5)
    lean = rng.normal(0, 0.012)
    low, high = (x0, x1) if upright else (y0, y1)
    for k, at in enumerate(np.arange(low + spacing, high - 0.3, spacing)):
        shift = lean * ((y1 - y0) if upright else (x1 - x0))
        other = float(np.clip(at + shift, low + 0.3, high - 0.3))
        line = np.array([[at, y0], [other, y1]] if upright else [[x0, at], [x1, other]])
        ground.stroke(line, spacing * 0.36, furrow)
        if k % 14 == 7 and material != Material.GRASS:
            for side in (-0.9, 0.9):
                ground.stroke(line + ([side, 0] if upright else [0, side]), 0.4, (132, 116, 88))
    for _ in range(int(rng.integers(0, 4))):
        # Wet hollows grow darker or thinner crop.
        centre = np.array([rng.uniform(x0, x1), rng.uniform(y0, y1)])
        ground.soil(_blob(rng, centre, rng.uniform(3, 9), (x0, y0, x1, y1)), rng.uniform(-16, 12))
    if stage.chance(0.35):
        hedge(stage, (x0, y0), (x1, y0) if stage.chance(0.5) else (x0, y1), rng.uniform(0.7, 1.4))


def _blob(
    rng: np.random.Generator, centre: FloatArray, radius: float, limits: tuple[float, float, float, float]
) -> FloatArray:
    """An irregular closed curve (24, 2) kept inside x0, y0, x1, y1."""
    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    lengths = np.full(24, radius)
    for lobes in (1, 2, 3):
        lengths += radius * 0.3 / lobes * np.cos(lobes * turns + rng.uniform(0, 6.3))
    points = centre + lengths[:, None] * np.stack([np.cos(turns), np.sin(turns)], 1)
    return np.asarray(np.clip(points, limits[:2], limits[2:]), np.float64)


def dirt_track(stage: Stage, path: Path) -> None:
    """Two worn wheel ruts with grass between them."""
    ground = stage.ground
    ground.fill(path.ribbon(-1.7, 1.7), (158, 142, 112), Material.GRAVEL)
    ground.fill(path.ribbon(-0.4, 0.4), (128, 124, 80), Material.GRASS)
    for offset in (-0.9, 0.9):
        ground.wear(path, offset, 0.6, 10)


def winding(rng: np.random.Generator, reach: float, at: float, swing: float, upright: bool = False) -> Path:
    """A gently curving path from one side of the scene to the other, about `at` metres off its middle."""
    along = np.linspace(-reach, reach, 120)
    sway = at + swing * np.sin(along / rng.uniform(60, 120) + rng.uniform(0, 6.3))
    sway += swing * 0.3 * np.sin(along / rng.uniform(25, 45) + rng.uniform(0, 6.3))
    points = np.stack([sway, along] if upright else [along, sway], 1)
    return Path(points)
