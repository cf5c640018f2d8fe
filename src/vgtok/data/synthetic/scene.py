"""Render a whole scene: pixels, boxes and labels from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.buildings import Building, building_sprite
from vgtok.data.synthetic.country import lay_highway, lay_village
from vgtok.data.synthetic.geometry import SUBPIXEL_BITS, ByteArray, Camera, Field, fixed_point, oriented
from vgtok.data.synthetic.ground import CrownBank, Ground, Surface, Tree
from vgtok.data.synthetic.harbor import lay_harbor
from vgtok.data.synthetic.objects import NAMES, Actor, ShadowMap, Sprite, Sun, darken, draw_sensor, expose, mix
from vgtok.data.synthetic.stage import Occupancy, Pole, Stage, paint
from vgtok.data.synthetic.town import lay_parking, lay_street
from vgtok.errors import InputError

SMALLEST_SIDE = 4
"""An object whose visible part is shorter than this, in pixels, is not drawn."""

InstanceMap = NDArray[np.int32]


@dataclass(frozen=True)
class Backdrop:
    """Everything static: ground (H, W, 3), what covers it from above, and its shadows (H, W) in 0..1."""

    ground: ByteArray
    overlay: ByteArray
    overlay_cover: ByteArray
    shadow: Field


def make_backdrop(stage: Stage, rng: np.random.Generator) -> Backdrop:
    """Texture the ground, raise buildings, trees and poles, and cast their shadows."""
    camera, sun = stage.camera, stage.sun
    ground = stage.ground.textured(rng)
    shadows = ShadowMap(camera, sun)
    for building in stage.buildings:
        shadows.cast_prism(building.footprint, building.height)
    building_shade = shadows.coverage.copy()
    crowns = CrownBank(rng, camera, sun)
    for tree in stage.trees:
        crowns.cast(tree, sun, shadows)
    overlay: ByteArray = np.zeros_like(ground)
    cover: ByteArray = np.zeros(ground.shape[:2], np.uint8)
    standing: list[Building | Tree] = [*stage.buildings, *stage.trees]
    # Things nearer the axis of the camera lean over those farther out.
    for thing in sorted(standing, key=lambda thing: (thing.height > 0, -np.hypot(thing.x, thing.y))):
        if isinstance(thing, Building):
            sprite = building_sprite(rng, thing, camera, sun)
        else:
            sprite = crowns.sprite(thing, _shade_at(stage, building_shade, thing))
        if sprite is not None:
            _lay(sprite, overlay, cover)
    for pole in stage.poles:
        _raise_pole(stage, pole, overlay, cover, shadows)
    return Backdrop(ground, overlay, cover, shadows.softened())


def _shade_at(stage: Stage, building_shade: ByteArray, tree: Tree) -> float:
    """Return how much a building's shadow darkens a tree."""
    x, y = np.floor(stage.camera.to_pixels([(tree.x, tree.y)])[0]).astype(int)
    if 0 <= x < stage.camera.width and 0 <= y < stage.camera.height and building_shade[y, x] > 127:
        return stage.sun.darkness * 0.55
    return 0.0


def _lay(sprite: Sprite, overlay: ByteArray, cover: ByteArray) -> None:
    sprite.blend_into(overlay)
    rows, columns = sprite.coverage.shape
    area = cover[sprite.top : sprite.top + rows, sprite.left : sprite.left + columns]
    area[:] = np.clip(area * (1 - sprite.coverage) + sprite.coverage * 255 + 0.5, 0, 255)


def _raise_pole(stage: Stage, pole: Pole, overlay: ByteArray, cover: ByteArray, shadows: ShadowMap) -> None:
    """Draw a post that leans outwards, its arm, the lamp at its end, and their shadow."""
    camera = stage.camera
    foot = np.array([[pole.x, pole.y]])
    tip = foot + pole.arm * np.array([np.cos(pole.heading), np.sin(pole.heading)])
    thickness = max(1, round(pole.girth * camera.pixels_per_meter))
    post = np.concatenate(
        [camera.to_pixels(foot), camera.to_pixels(foot, pole.height), camera.to_pixels(tip, pole.height)]
    )
    lamp = camera.to_pixels(oriented(tip[0], 0.8, 0.35, pole.heading), pole.height)
    shade = np.concatenate([foot, foot + stage.sun.offset(pole.height), tip + stage.sun.offset(pole.height)])
    for canvas, color in ((overlay, pole.color), (cover, (255.0, 255.0, 255.0))):
        cv2.polylines(canvas, [fixed_point(post)], False, color, thickness, cv2.LINE_AA, SUBPIXEL_BITS)
        bright = mix(color, (255, 255, 255), 0.5)
        cv2.fillPoly(canvas, [fixed_point(lamp)], bright, cv2.LINE_AA, SUBPIXEL_BITS)
    pixels = [fixed_point(camera.to_pixels(shade))]
    cv2.polylines(shadows.coverage, pixels, False, 200, thickness, cv2.LINE_AA, SUBPIXEL_BITS)


def visible_actors(
    stage: Stage, backdrop: Backdrop, actors: Sequence[Actor]
) -> tuple[list[Actor], list[Sprite], InstanceMap]:
    """Return the actors to draw, their sprites, and the owner of each pixel: (H, W), 0 for none, i + 1 for actor i.

    A pixel belongs to the last actor that covers at least half of it, unless something covers it from above.
    """
    instances: InstanceMap = np.zeros(backdrop.overlay_cover.shape, np.int32)
    candidates: list[tuple[Actor, Sprite]] = []
    for actor in actors:
        sprite = paint(actor, stage.camera)
        if sprite is None:
            continue
        candidates.append((actor, sprite))
        rows, columns = sprite.coverage.shape
        area = instances[sprite.top : sprite.top + rows, sprite.left : sprite.left + columns]
        area[sprite.coverage >= 0.5] = len(candidates)
    instances[backdrop.overlay_cover >= 128] = 0
    extents = instance_boxes(instances, [sprite for _, sprite in candidates])
    sides = np.maximum(extents[:, 2] - extents[:, 0], extents[:, 3] - extents[:, 1])
    kept = np.flatnonzero(sides >= SMALLEST_SIDE)
    renumber = np.zeros(len(candidates) + 1, np.int32)
    renumber[kept + 1] = np.arange(1, len(kept) + 1)
    return [candidates[k][0] for k in kept], [candidates[k][1] for k in kept], renumber[instances]


def instance_boxes(instances: InstanceMap, sprites: Sequence[Sprite]) -> NDArray[np.float32]:
    """Return tight boxes (N, 4) around the pixels each sprite owns; zeros where it owns none."""
    boxes = np.zeros((len(sprites), 4), np.float32)
    for k, sprite in enumerate(sprites):
        rows, columns = sprite.coverage.shape
        own = instances[sprite.top : sprite.top + rows, sprite.left : sprite.left + columns] == k + 1
        ys, xs = np.flatnonzero(own.any(1)), np.flatnonzero(own.any(0))
        if len(xs):
            boxes[k] = (
                sprite.left + xs[0],
                sprite.top + ys[0],
                sprite.left + xs[-1] + 1,
                sprite.top + ys[-1] + 1,
            )
    return boxes


def paint_picture(stage: Stage, backdrop: Backdrop, actors: Sequence[Actor], sprites: Sequence[Sprite]) -> ByteArray:
    """Return the clean picture (H, W, 3), before the sensor."""
    picture = backdrop.ground.copy()
    moving = ShadowMap(stage.camera, stage.sun)
    for actor in actors:
        moving.cast_actor(actor)
    # A shadow inside a shadow is no darker.
    darken(picture, moving.softened() * (1 - backdrop.shadow), stage.sun.darkness)
    for sprite in sprites:
        sprite.blend_into(picture)
    darken(picture, backdrop.shadow, stage.sun.darkness)
    cover = backdrop.overlay_cover.astype(np.uint16)
    for channel in range(3):
        below = picture[:, :, channel] * (255 - cover) // 255
        picture[:, :, channel] = np.minimum(below + backdrop.overlay[:, :, channel], 255)
    return picture


_LAYOUT_BUILDERS: dict[str, Callable[[Stage], None]] = {
    "street": lay_street,
    "highway": lay_highway,
    "parking": lay_parking,
    "village": lay_village,
    "harbour": lay_harbor,
}

LAYOUTS = tuple(_LAYOUT_BUILDERS)
"""Names of the layouts."""

SMALLEST_SCENE = 64
"""The least width and height of a scene, in pixels."""

MOST_PIXELS = 2**28
"""The most pixels of a scene, 16384 x 16384: each takes about forty bytes to draw."""


@dataclass(frozen=True)
class SceneConfig:
    """Properties of a scene; those that are None are drawn from the seed."""

    layout: str | None = None
    """One of `LAYOUTS`: street, highway, parking, village, harbour."""
    pixels_per_meter: float | None = None
    """Ground sample density. At 10 a car is about 46 px long and a person 7; below 5 people are too small to draw."""
    traffic: float | None = None
    """Density of vehicles and ships, from 0 (nearly empty) to 1 (rush hour)."""
    crowd: float | None = None
    """Density of people, from 0 (none) to 2."""
    water: float | None = None
    """Share of water in a harbour scene, from 0 to 1; other layouts have none."""

    def __post_init__(self) -> None:
        """Raise `InputError` for values no scene can be drawn from."""
        if self.layout is not None and self.layout not in LAYOUTS:
            raise InputError(f"layout: must be one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        if self.pixels_per_meter is not None and not 1 <= self.pixels_per_meter <= 100:
            raise InputError(f"pixels_per_meter: must lie in 1..100, not {self.pixels_per_meter}")
        for name in ("traffic", "crowd", "water"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= (2 if name == "crowd" else 1):
                raise InputError(f"{name}: must lie in 0..{2 if name == 'crowd' else 1}, not {value}")


@dataclass(frozen=True)
class Setting:
    """A `SceneConfig` with every value set."""

    layout: str
    pixels_per_meter: float
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
    """The configuration with the values the seed drew."""
    names: tuple[str, ...] = field(default=NAMES)
    """The ten classes of VisDrone in its order, then ship."""


def render_scene(seed: int, width: int = 2048, height: int = 1152, config: SceneConfig | None = None) -> Scene:
    """Render the scene of a seed.

    The same seed, size and configuration give the same bytes on any number of threads, for one version of OpenCV
    (its rounding of drawn edges has changed between versions).
    """
    if width < SMALLEST_SCENE or height < SMALLEST_SCENE:
        raise InputError(f"size: a scene is at least {SMALLEST_SCENE} px wide and high, not {width} x {height}")
    if width * height > MOST_PIXELS:
        raise InputError(f"size: a scene has at most {MOST_PIXELS} pixels, not {width} x {height}")
    if seed < 0:
        raise InputError(f"seed: {seed} is below 0")
    setting = resolve(seed, config or SceneConfig())
    stage = furnish(seed, width, height, setting)
    backdrop = make_backdrop(stage, _stream(seed, "backdrop"))
    return shoot(seed, stage, backdrop, stage.actors, setting)


def resolve(seed: int, config: SceneConfig) -> Setting:
    """Return the configuration with its open values drawn from the seed."""
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
        pixels_per_meter=density if config.pixels_per_meter is None else config.pixels_per_meter,
        traffic=traffic if config.traffic is None else config.traffic,
        crowd=crowd if config.crowd is None else config.crowd,
        water=water if config.water is None else config.water,
    )


def furnish(seed: int, width: int, height: int, setting: Setting) -> Stage:
    """Lay out a scene: draw the ground and place everything else; nothing is rendered yet."""
    rng = _stream(seed, "layout")
    span = float(np.hypot(width, height)) / setting.pixels_per_meter
    angle = float(rng.normal(0, 0.22)) + float(rng.choice([0.0, np.pi / 2, np.pi, -np.pi / 2]))
    # A field of view near 55 degrees; the floor keeps towers below the camera in small images.
    camera = Camera(width, height, setting.pixels_per_meter, angle, max(110.0, span * 0.95))
    overcast = rng.random() < 0.15
    sun = Sun(
        azimuth=float(rng.uniform(0, 2 * np.pi)),
        reach=float(rng.uniform(0.45, 1.1)),
        darkness=float(rng.uniform(0.16, 0.26) if overcast else rng.uniform(0.42, 0.6)),
        softness=float(rng.uniform(0.4, 0.8) if overcast else rng.uniform(0.05, 0.12)),
    )
    ground = Ground(camera, (104, 114, 68), Surface.GRASS)
    stage = Stage(camera, sun, rng, ground, setting.traffic, setting.crowd, setting.water, Occupancy(camera))
    _LAYOUT_BUILDERS[setting.layout](stage)
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
    """Return a separate generator per purpose, so that one more tree does not change the noise."""
    return np.random.default_rng((seed, _STREAMS[purpose]))
