"""The scene under construction: layouts draw on its ground and put buildings, plants, poles and actors on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic.buildings import Building, RoofKind, make_building
from vgtok.data.synthetic.casting import make_actor
from vgtok.data.synthetic.geometry import (
    SUBPIXEL_BITS,
    ByteArray,
    Colour,
    FloatArray,
    Path,
    View,
    fixed_point,
    oriented,
)
from vgtok.data.synthetic.ground import Ground
from vgtok.data.synthetic.lighting import Sun
from vgtok.data.synthetic.objects import EXTENTS, Actor, Kind
from vgtok.data.synthetic.vegetation import Tree, make_tree


class Occupancy:
    """A coarse raster of taken ground, so that solid things do not overlap."""

    def __init__(self, view: View) -> None:
        self._scale = min(1.0, 4.0 / view.pixels_per_metre)
        self._margin = 80
        shape = [int(side * self._scale) + 2 * self._margin for side in (view.height, view.width)]
        self._view = view
        self._taken: ByteArray = np.zeros(shape, np.uint8)

    def claim(self, shape: FloatArray, test_only: bool = False) -> bool:
        """Take a polygon (N, 2) of scene points if all of it is free; says whether it was."""
        pixels = self._view.to_pixels(shape) * self._scale + self._margin
        low = np.maximum(np.floor(pixels.min(0)).astype(int), 0)
        high = np.minimum(np.ceil(pixels.max(0)).astype(int) + 1, self._taken.shape[::-1])
        if np.any(high <= low):
            return False
        patch: ByteArray = np.zeros((high[1] - low[1], high[0] - low[0]), np.uint8)
        cv2.fillPoly(patch, [fixed_point(pixels - low)], 1, cv2.LINE_8, SUBPIXEL_BITS)
        area = self._taken[low[1] : high[1], low[0] : high[0]]
        if np.any(area & patch):
            return False
        if not test_only:
            area |= patch
        return True


@dataclass(frozen=True)
class Pole:
    """A lamp post, a signal mast or the leg of a crane, with an arm towards `heading`."""

    x: float
    y: float
    height: float
    heading: float
    arm: float
    girth: float = 0.16
    colour: Colour = (150, 152, 152)


@dataclass
class Stage:
    """Everything a layout needs and everything it leaves behind."""

    view: View
    sun: Sun
    rng: np.random.Generator
    ground: Ground
    traffic: float
    crowd: float
    water: float
    occupancy: Occupancy
    buildings: list[Building] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    poles: list[Pole] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)

    def place(self, actor: Actor, clearance: float = 0.35) -> bool:
        """Put an actor down if it may show in the frame and its ground is free."""
        if not self.view.sees((actor.x, actor.y), actor.length / 2 + 2):
            return False
        shape = oriented((actor.x, actor.y), actor.length + clearance, actor.width + clearance, actor.heading)
        if not self.occupancy.claim(shape):
            return False
        self.actors.append(actor)
        return True

    def cast(self, kind: Kind, place: NDArray[np.float64], heading: float, parked: bool = False) -> bool:
        """Make an actor of a class and put it down."""
        if not self.view.sees(place, EXTENTS[kind].length / 2 + 2):
            return False
        actor = make_actor(self.rng, kind, float(place[0]), float(place[1]), float(heading), parked)
        return self.place(actor, 0.1 if kind in (Kind.PEDESTRIAN, Kind.PEOPLE) or parked else 0.35)

    def build(
        self, x: float, y: float, length: float, width: float, heading: float, height: float, roof: RoofKind
    ) -> bool:
        """Put up a building if it may show and its ground is free."""
        if not self.view.sees((x, y), float(np.hypot(length, width)) / 2 + 3 * height):
            return False
        if not self.occupancy.claim(oriented((x, y), length, width, heading)):
            return False
        self.buildings.append(make_building(self.rng, x, y, length, width, heading, height, roof))
        return True

    def plant(self, x: float, y: float, radius: float) -> None:
        """Plant a tree, or a bush if it is small."""
        if self.view.sees((x, y), radius * 4):
            self.trees.append(make_tree(self.rng, float(x), float(y), float(radius)))

    def clear_trees(self, path: Path, distance: float) -> None:
        """Fell every tree nearer to a path than `distance` metres: hedges of fields end at a road."""
        self.trees = [
            tree for tree in self.trees if np.hypot(*(path.points - [tree.x, tree.y]).T).min() > distance + tree.radius
        ]

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return bool(self.rng.random() < probability)
