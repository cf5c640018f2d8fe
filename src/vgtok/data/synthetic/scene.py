"""Public face of the synthetic scenes: a seed and a size go in, pixels, exact boxes and labels come out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

from .compose import Backdrop, instance_boxes, make_backdrop, paint_picture, visible_actors
from .geometry import View
from .ground import Ground, Material
from .layouts import LAYOUT_BUILDERS
from .objects import NAMES, Actor
from .sensor import draw_sensor, expose
from .shading import Sun
from .stage import Occupancy, Stage

LAYOUTS = tuple(LAYOUT_BUILDERS)
"""The kinds of place a scene can be."""

SMALLEST_FRAME = 64
"""The least width and height of a scene, in pixels."""

MOST_PIXELS = 2**28
"""The most pixels of a scene, 16384 x 16384: every one takes some forty bytes to draw."""


@dataclass(frozen=True)
class SceneConfig:
    """What to fix about a scene; whatever is None is drawn from the seed."""

    layout: str | None = None
    """One of `LAYOUTS`: street, highway, parking, village, harbour."""
    pixels_per_metre: float | None = None
    """Ground sample density. At 10 a car is about 46 px long and a person 7; below 5 people vanish."""
    traffic: float | None = None
    """How full the roads, bays and waters are, from 0 (nearly empty) to 1 (rush hour)."""
    crowd: float | None = None
    """How many people are about, from 0 (none) to 1 and more."""
    water: float | None = None
    """Share of a harbour's frame that is water, from 0 to 1; other layouts have none."""

    def __post_init__(self) -> None:
        """Refuse values no scene can be drawn from."""
        if self.layout is not None and self.layout not in LAYOUTS:
            raise InputError(f"layout: must be one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        if self.pixels_per_metre is not None and not 1 <= self.pixels_per_metre <= 100:
            raise InputError(f"pixels_per_metre: must lie in 1..100, not {self.pixels_per_metre}")
        for name in ("traffic", "crowd", "water"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= (2 if name == "crowd" else 1):
                raise InputError(f"{name}: must lie in 0..{2 if name == 'crowd' else 1}, not {value}")


@dataclass(frozen=True)
class Setting:
    """A `SceneConfig` with every draw made; the fields mean the same."""

    layout: str
    pixels_per_metre: float
    traffic: float
    crowd: float
    water: float


@dataclass(frozen=True)
class Scene:
    """A rendered scene and its ground truth."""

    pixels: NDArray[np.uint8]
    """(H, W, 3) RGB."""
    boxes: NDArray[np.float32]
    """(N, 4) x0 y0 x1 y1: the tight extent of each object's visible pixels, in whole pixels, x1 and y1 exclusive."""
    labels: NDArray[np.int64]
    """(N,) index into `names`."""
    instances: NDArray[np.int32]
    """(H, W) 0 where no object is visible, i + 1 on the visible pixels of object i."""
    setting: Setting
    """What the configuration fixed and what the seed drew."""
    names: tuple[str, ...] = field(default=NAMES)
    """The ten classes of VisDrone in its order, then ship."""


def render_scene(seed: int, width: int = 2048, height: int = 1152, config: SceneConfig | None = None) -> Scene:
    """Draw the scene of a seed.

    The same seed, size and configuration give the same bytes on any number of threads, for one version of OpenCV
    (its rounding of drawn edges has changed between versions).
    """
    if width < SMALLEST_FRAME or height < SMALLEST_FRAME:
        raise InputError(f"size: a scene is at least {SMALLEST_FRAME} px wide and high, not {width} x {height}")
    if width * height > MOST_PIXELS:
        raise InputError(f"size: a scene has at most {MOST_PIXELS} pixels, not {width} x {height}")
    if seed < 0:
        raise InputError(f"seed: {seed} is below 0")
    setting = resolve(seed, config or SceneConfig())
    stage = furnish(seed, width, height, setting)
    backdrop = make_backdrop(stage, _stream(seed, "backdrop"))
    return shoot(seed, stage, backdrop, stage.actors, setting)


def resolve(seed: int, config: SceneConfig) -> Setting:
    """Fill in what a configuration leaves open."""
    rng = _stream(seed, "config")
    weights = np.array([0.38, 0.14, 0.18, 0.16, 0.14])
    layout = LAYOUTS[int(rng.choice(len(LAYOUTS), p=weights))]
    density = float(np.exp(rng.uniform(np.log(7.5), np.log(16.0))))
    traffic, crowd, water = (
        float(rng.uniform(0.35, 1.0)),
        float(rng.uniform(0.3, 1.2)),
        float(rng.uniform(0.35, 0.7)),
    )
    return Setting(
        layout=layout if config.layout is None else config.layout,
        pixels_per_metre=density if config.pixels_per_metre is None else config.pixels_per_metre,
        traffic=traffic if config.traffic is None else config.traffic,
        crowd=crowd if config.crowd is None else config.crowd,
        water=water if config.water is None else config.water,
    )


def furnish(seed: int, width: int, height: int, setting: Setting) -> Stage:
    """Lay out a scene: ground drawn, everything else placed, nothing rendered yet."""
    rng = _stream(seed, "layout")
    span = float(np.hypot(width, height)) / setting.pixels_per_metre
    angle = float(rng.normal(0, 0.22)) + float(rng.choice([0.0, np.pi / 2, np.pi, -np.pi / 2]))
    # A field of view near 55 degrees; the floor keeps towers below the camera in small frames.
    view = View(width, height, setting.pixels_per_metre, angle, max(110.0, span * 0.95))
    overcast = rng.random() < 0.15
    sun = Sun(
        azimuth=float(rng.uniform(0, 2 * np.pi)),
        reach=float(rng.uniform(0.45, 1.1)),
        darkness=float(rng.uniform(0.16, 0.26) if overcast else rng.uniform(0.42, 0.6)),
        softness=float(rng.uniform(0.4, 0.8) if overcast else rng.uniform(0.05, 0.12)),
    )
    ground = Ground(view, (104, 114, 68), Material.GRASS)
    stage = Stage(view, sun, rng, ground, setting.traffic, setting.crowd, setting.water, Occupancy(view))
    LAYOUT_BUILDERS[setting.layout](stage)
    return stage


def shoot(seed: int, stage: Stage, backdrop: Backdrop, actors: list[Actor], setting: Setting) -> Scene:
    """Render a furnished stage with the given actors on it."""
    shown, sprites, instances = visible_actors(stage, backdrop, actors)
    picture = paint_picture(stage, backdrop, shown, sprites)
    rng = _stream(seed, "sensor")
    pixels = expose(picture, draw_sensor(rng), rng)
    labels = np.array([int(actor.kind) for actor in shown], np.int64)
    return Scene(pixels, instance_boxes(instances, sprites), labels, instances, setting)


_STREAMS = {"layout": 1, "backdrop": 2, "sensor": 3, "config": 4}


def _stream(seed: int, purpose: str) -> np.random.Generator:
    """Its own generator for each purpose, so that one more tree does not change the noise."""
    return np.random.default_rng((seed, _STREAMS[purpose]))
