"""From a furnished stage to a picture: overlay of crowns and roofs, shadows, actors, and the map of who is visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .buildings import Building, building_sprite
from .casting import paint
from .geometry import SUBPIXEL_BITS, ByteArray, fixed_point, oriented
from .noise import Field
from .objects import Actor, Sprite, mix
from .shading import ShadowMap, darken
from .stage import Pole, Stage
from .vegetation import CrownBank, Tree

SMALLEST_SIDE = 4
"""An object whose visible part is shorter than this, in pixels, is left out of the scene altogether."""

InstanceMap = NDArray[np.int32]


@dataclass(frozen=True)
class Backdrop:
    """All that does not move: ground (H, W, 3), what hangs over it, and its shadows (H, W) in 0..1."""

    ground: ByteArray
    overlay: ByteArray
    overlay_cover: ByteArray
    shadow: Field


def make_backdrop(stage: Stage, rng: np.random.Generator) -> Backdrop:
    """Texture the ground, raise buildings, trees and poles, and cast their shadows."""
    view, sun = stage.view, stage.sun
    ground = stage.ground.textured(rng)
    shadows = ShadowMap(view, sun)
    for building in stage.buildings:
        shadows.cast_prism(building.footprint, building.height)
    building_shade = shadows.coverage.copy()
    crowns = CrownBank(rng, view, sun)
    for tree in stage.trees:
        crowns.cast(tree, sun, shadows)
    overlay: ByteArray = np.zeros_like(ground)
    cover: ByteArray = np.zeros(ground.shape[:2], np.uint8)
    standing: list[Building | Tree] = [*stage.buildings, *stage.trees]
    # What is nearer the camera's axis leans over what is farther out.
    for thing in sorted(standing, key=lambda thing: (thing.height > 0, -np.hypot(thing.x, thing.y))):
        if isinstance(thing, Building):
            sprite = building_sprite(rng, thing, view, sun)
        else:
            sprite = crowns.sprite(thing, _shade_at(stage, building_shade, thing))
        if sprite is not None:
            _lay(sprite, overlay, cover)
    for pole in stage.poles:
        _raise_pole(stage, pole, overlay, cover, shadows)
    return Backdrop(ground, overlay, cover, shadows.softened())


def _shade_at(stage: Stage, building_shade: ByteArray, tree: Tree) -> float:
    """How much darker a tree is for standing in a building's shadow."""
    x, y = np.floor(stage.view.to_pixels([(tree.x, tree.y)])[0]).astype(int)
    if 0 <= x < stage.view.width and 0 <= y < stage.view.height and building_shade[y, x] > 127:
        return stage.sun.darkness * 0.55
    return 0.0


def _lay(sprite: Sprite, overlay: ByteArray, cover: ByteArray) -> None:
    sprite.blend_into(overlay)
    rows, columns = sprite.coverage.shape
    area = cover[sprite.top : sprite.top + rows, sprite.left : sprite.left + columns]
    area[:] = np.clip(area * (1 - sprite.coverage) + sprite.coverage * 255 + 0.5, 0, 255)


def _raise_pole(stage: Stage, pole: Pole, overlay: ByteArray, cover: ByteArray, shadows: ShadowMap) -> None:
    """A post that leans outwards, its arm, the lamp at its end, and the shadow of it all."""
    view = stage.view
    foot = np.array([[pole.x, pole.y]])
    tip = foot + pole.arm * np.array([np.cos(pole.heading), np.sin(pole.heading)])
    thickness = max(1, round(pole.girth * view.pixels_per_metre))
    post = np.concatenate([view.to_pixels(foot), view.to_pixels(foot, pole.height), view.to_pixels(tip, pole.height)])
    lamp = view.to_pixels(oriented(tip[0], 0.8, 0.35, pole.heading), pole.height)
    shade = np.concatenate([foot, foot + stage.sun.offset(pole.height), tip + stage.sun.offset(pole.height)])
    for canvas, colour in ((overlay, pole.colour), (cover, (255.0, 255.0, 255.0))):
        cv2.polylines(canvas, [fixed_point(post)], False, colour, thickness, cv2.LINE_AA, SUBPIXEL_BITS)
        bright = mix(colour, (255, 255, 255), 0.5)
        cv2.fillPoly(canvas, [fixed_point(lamp)], bright, cv2.LINE_AA, SUBPIXEL_BITS)
    pixels = [fixed_point(view.to_pixels(shade))]
    cv2.polylines(shadows.coverage, pixels, False, 200, thickness, cv2.LINE_AA, SUBPIXEL_BITS)


def visible_actors(
    stage: Stage, backdrop: Backdrop, actors: Sequence[Actor]
) -> tuple[list[Actor], list[Sprite], InstanceMap]:
    """The actors worth drawing, their sprites, and whose pixel is whose: (H, W), 0 for nobody, i + 1 for actor i.

    A pixel belongs to the last actor that covers at least half of it, unless something hangs over it.
    """
    instances: InstanceMap = np.zeros(backdrop.overlay_cover.shape, np.int32)
    candidates: list[tuple[Actor, Sprite]] = []
    for actor in actors:
        sprite = paint(actor, stage.view)
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
    """Tight boxes (N, 4) around the pixels each sprite owns; zeros where it owns none."""
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
    """The clean picture (H, W, 3), before the camera."""
    picture = backdrop.ground.copy()
    moving = ShadowMap(stage.view, stage.sun)
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
