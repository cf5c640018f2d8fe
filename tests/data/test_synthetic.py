"""Synthetic scenes: the bytes repeat, the boxes are what is visible, and the frames differ where they should."""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from vgtok import InputError
from vgtok.data.synthetic import LAYOUTS, NAMES, Scene, SceneConfig, render_scene
from vgtok.data.synthetic.geometry import Camera, Polyline
from vgtok.data.synthetic.objects import BODY_SIZES, Actor, Kind
from vgtok.data.synthetic.scene import SMALLEST_SIDE, furnish, make_backdrop, paint_picture, resolve, visible_actors
from vgtok.data.synthetic.stage import make_actor, make_ship, paint


def extents_of(instances: np.ndarray, count: int) -> np.ndarray:
    """Tight boxes (N, 4) straight from an instance map, without the renderer's bookkeeping."""
    ys, xs = np.nonzero(instances)
    owners = instances[ys, xs] - 1
    low, high = np.full((count, 2), 10**6), np.full((count, 2), -1)
    np.minimum.at(low, owners, np.stack([xs, ys], 1))
    np.maximum.at(high, owners, np.stack([xs, ys], 1) + 1)
    return np.concatenate([low, high], 1)


def check_truth(scene: Scene, width: int, height: int) -> None:
    assert scene.pixels.shape == (height, width, 3)
    assert scene.pixels.dtype == np.uint8
    assert scene.boxes.shape == (len(scene.labels), 4)
    assert scene.boxes.dtype == np.float32
    assert scene.labels.dtype == np.int64
    assert scene.instances.shape == (height, width)
    assert np.all(scene.boxes[:, :2] >= 0)
    assert np.all(scene.boxes[:, 2:] <= (width, height))
    sides = scene.boxes[:, 2:] - scene.boxes[:, :2]
    assert np.all(sides >= 1)
    assert np.all(sides.max(1, initial=0) >= SMALLEST_SIDE)
    assert np.all((scene.labels >= 0) & (scene.labels < len(NAMES)))
    assert scene.instances.max() == len(scene.labels)
    np.testing.assert_array_equal(scene.boxes, extents_of(scene.instances, len(scene.labels)))


def test_class_names_are_those_of_visdrone_and_ship() -> None:
    scene = render_scene(0, 64, 64)
    assert scene.names == (
        *("pedestrian", "people", "bicycle", "car", "van", "truck"),
        *("tricycle", "awning-tricycle", "bus", "motor", "ship"),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_same_seed_same_bytes_on_any_number_of_threads(layout: str) -> None:
    config = SceneConfig(layout=layout)
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        first = render_scene(11, 320, 192, config)
        cv2.setNumThreads(4)
        np.random.seed(5)
        second = render_scene(11, 320, 192, config)
    finally:
        cv2.setNumThreads(before)
    for name in ("pixels", "boxes", "labels", "instances"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_seeds_give_different_frames_and_every_layout() -> None:
    drawn = [resolve(seed, SceneConfig()) for seed in range(40)]
    assert {setting.layout for setting in drawn} == set(LAYOUTS)
    assert len({setting.pixels_per_meter for setting in drawn}) == 40
    config = SceneConfig(layout="street", pixels_per_meter=9.0)
    first, second = (render_scene(seed, 256, 256, config).pixels.astype(int) for seed in (1, 2))
    assert np.abs(first - second).mean() > 5


def test_layouts_of_one_seed_differ() -> None:
    frames = [render_scene(3, 192, 192, SceneConfig(layout=layout)).pixels.astype(int) for layout in LAYOUTS]
    for k, frame in enumerate(frames):
        for other in frames[:k]:
            assert np.abs(frame - other).mean() > 5


# A failing seed says all there is to say: shrinking it would only render for minutes.
@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 2**63),
    width=st.integers(64, 420),
    height=st.integers(64, 420),
    density=st.floats(2.0, 25.0),
    layout=st.sampled_from(LAYOUTS),
)
def test_truth_holds_at_any_size_and_scale(seed: int, width: int, height: int, density: float, layout: str) -> None:
    config = SceneConfig(layout=layout, pixels_per_meter=density)
    check_truth(render_scene(seed, width, height, config), width, height)


@pytest.mark.parametrize(("width", "height"), [(64, 64), (65, 511), (1023, 77), (1537, 901)])
def test_truth_holds_from_tiny_to_large(width: int, height: int) -> None:
    for seed in (2, 5):
        check_truth(render_scene(seed, width, height), width, height)


def test_a_wide_frame_is_filled_to_its_edges() -> None:
    scene = render_scene(4, 3000, 600, SceneConfig(layout="street", pixels_per_meter=8.0, traffic=0.9, crowd=1.0))
    check_truth(scene, 3000, 600)
    per_quarter = np.histogram(scene.boxes[:, 0], bins=4, range=(0, 3000))[0]
    assert per_quarter.min() >= 10


def test_every_class_appears() -> None:
    seen: set[int] = set()
    for seed in range(3):
        for layout in ("street", "harbour"):
            config = SceneConfig(layout=layout, pixels_per_meter=8.0, traffic=1.0, crowd=1.2)
            seen |= set(render_scene(seed, 1280, 720, config).labels.tolist())
    assert seen == set(range(len(NAMES)))


def test_ships_stay_on_the_water_and_cars_off_it() -> None:
    """With the frame turned to the scene's axes, the quay splits ships from everything on wheels."""
    setting = resolve(6, SceneConfig(layout="harbour", pixels_per_meter=8.0, traffic=1.0, water=0.5))
    actors = furnish(6, 1280, 720, setting).actors
    ships = [actor.y for actor in actors if actor.kind == Kind.SHIP]
    wheels = [actor.y for actor in actors if actor.kind in (Kind.CAR, Kind.TRUCK, Kind.VAN)]
    assert len(ships) > 3
    assert len(wheels) > 3
    assert min(ships) > 0 > max(wheels)


def span(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First (2,) and one past last (2,) column and row of a mask."""
    ys, xs = np.nonzero(mask)
    return np.array([xs.min(), ys.min()]), np.array([xs.max() + 1, ys.max() + 1])


@pytest.mark.parametrize(("seed", "layout"), [(1, "street"), (8, "village"), (3, "harbour")])
def test_repainting_one_object_shows_exactly_its_box(seed: int, layout: str) -> None:
    """White paint against black paint gives the object's visible coverage from the picture alone.

    Its shadow stays as it is, so the difference is the object and nothing else. All that is plainly visible
    must lie in the box, and the box must not reach past what is faintly visible.
    """
    setting = resolve(seed, SceneConfig(layout=layout, pixels_per_meter=10.0, traffic=0.8, crowd=0.8))
    stage = furnish(seed, 512, 384, setting)
    backdrop = make_backdrop(stage, np.random.default_rng(0))
    shown, sprites, instances = visible_actors(stage, backdrop, stage.actors)
    light = 1 - backdrop.shadow * stage.sun.darkness
    boxes = extents_of(instances, len(shown))
    assert len(shown) >= 5
    for k, sprite in enumerate(sprites):
        black = dataclasses.replace(sprite, color=np.zeros_like(sprite.color))
        white = dataclasses.replace(sprite, color=255 * np.repeat(sprite.coverage[..., None], 3, 2))
        dark, bright = (
            paint_picture(stage, backdrop, shown, [*sprites[:k], other, *sprites[k + 1 :]])[:, :, 0].astype(float)
            for other in (black, white)
        )
        visible = (bright - dark) / (255 * light)
        plain_low, plain_high = span(visible > 0.53)
        faint_low, faint_high = span(visible > 0.22)
        assert np.all(boxes[k, :2] <= plain_low)
        assert np.all(boxes[k, 2:] >= plain_high)
        assert np.all(boxes[k, :2] >= faint_low)
        assert np.all(boxes[k, 2:] <= faint_high)


def test_removing_an_object_leaves_distant_pixels_alone() -> None:
    setting = resolve(1, SceneConfig(layout="parking", pixels_per_meter=8.0, traffic=0.9))
    stage = furnish(1, 400, 300, setting)
    backdrop = make_backdrop(stage, np.random.default_rng(0))
    shown, sprites, instances = visible_actors(stage, backdrop, stage.actors)
    full = paint_picture(stage, backdrop, shown, sprites)
    cars = [k for k, actor in enumerate(shown) if actor.kind == Kind.CAR]
    assert cars
    boxes = extents_of(instances, len(shown))
    for k in cars[:6]:
        fewer = paint_picture(stage, backdrop, shown[:k] + shown[k + 1 :], sprites[:k] + sprites[k + 1 :])
        changed = np.any(full != fewer, axis=2)
        x0, y0, x1, y1 = boxes[k].astype(int)
        assert changed[y0:y1, x0:x1].mean() > 0.5
        # A car's shadow reaches its own height and a little penumbra.
        reach = int((shown[k].height * stage.sun.reach + 4 * stage.sun.softness) * 8.0) + 6
        changed[max(0, y0 - reach) : y1 + reach, max(0, x0 - reach) : x1 + reach] = False
        assert not changed.any()


def test_an_object_under_a_crown_is_not_listed() -> None:
    setting = resolve(0, SceneConfig(layout="village", pixels_per_meter=10.0, traffic=0.0, crowd=0.0))
    stage = furnish(0, 256, 256, setting)
    stage.trees.clear()
    stage.buildings.clear()
    stage.poles.clear()
    rng = np.random.default_rng(0)
    hidden = make_actor(rng, Kind.BICYCLE, 5.0, 5.0, 0.3)
    free = make_actor(rng, Kind.BICYCLE, -6.0, -4.0, 0.3)
    stage.plant(5.0, 5.0, 4.5)
    backdrop = make_backdrop(stage, rng)
    shown, _, instances = visible_actors(stage, backdrop, [hidden, free])
    assert shown == [free]
    assert set(np.unique(instances)) == {0, 1}


@pytest.mark.parametrize("kind", list(Kind))
def test_a_painted_object_fits_its_measures(kind: Kind) -> None:
    """Straight below the camera a sprite spans its length and width; no class outgrows its extent."""
    camera = Camera(900, 900, 12.0, 0.0, 1e6)
    rng = np.random.default_rng(4)
    actor = make_ship(rng, 0, 0, 0, 40.0) if kind == Kind.SHIP else make_actor(rng, kind, 0, 0, 0)
    sprite = paint(actor, camera)
    assert sprite is not None
    ys, xs = np.nonzero(sprite.coverage >= 0.5)
    long, wide = np.ptp(xs) + 1, np.ptp(ys) + 1
    assert actor.length <= BODY_SIZES[kind].length
    assert abs(long - actor.length * 12) <= 4
    assert wide <= (actor.width + 0.4) * 12 + 1
    assert long >= wide


def test_sizes_of_the_classes_stand_in_proportion() -> None:
    rng = np.random.default_rng(1)

    def typical(kind: Kind) -> float:
        return float(np.mean([make_actor(rng, kind, 0, 0, 0).length for _ in range(30)]))

    order = (Kind.PEDESTRIAN, Kind.BICYCLE, Kind.TRICYCLE, Kind.CAR, Kind.VAN, Kind.TRUCK, Kind.BUS)
    lengths = [typical(kind) for kind in order]
    assert lengths == sorted(lengths)
    assert 4.2 < typical(Kind.CAR) < 5.0


def test_actors_do_not_overlap() -> None:
    setting = resolve(2, SceneConfig(layout="street", pixels_per_meter=8.0, traffic=1.0, crowd=1.2))
    actors = furnish(2, 640, 480, setting).actors
    assert len(actors) > 40
    taken = np.zeros((480 * 2, 640 * 2), np.int32)
    camera = Camera(640 * 2, 480 * 2, 16.0, 0.0, 1e6)
    for actor in actors:
        mask = np.zeros(taken.shape, np.uint8)
        cv2.fillConvexPoly(mask, np.round(camera.to_pixels(actor.footprint)).astype(np.int32), 1)
        taken += mask
    # The occupancy raster is coarse: corners may touch, bodies may not.
    assert (taken > 1).sum() < 0.02 * (taken > 0).sum()


def test_density_of_traffic_and_crowd_is_heeded() -> None:
    def counts(traffic: float, crowd: float) -> np.ndarray:
        config = SceneConfig(layout="street", pixels_per_meter=8.0, traffic=traffic, crowd=crowd)
        return np.bincount(render_scene(9, 800, 600, config).labels, minlength=len(NAMES))

    empty, full = counts(0.0, 0.0), counts(1.0, 1.0)
    assert full[Kind.CAR] > 1.5 * empty[Kind.CAR]
    assert empty[Kind.PEDESTRIAN] == 0
    assert full[Kind.PEDESTRIAN] > 20


@pytest.mark.parametrize(
    "fields",
    [{"layout": "moon"}, {"pixels_per_meter": 0.0}, {"traffic": 1.5}, {"crowd": -0.1}, {"water": 2.0}],
)
def test_impossible_configurations_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(fields))):
        SceneConfig(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "height"), [(63, 64), (64, 10)])
def test_frames_below_the_least_size_are_refused(width: int, height: int) -> None:
    with pytest.raises(InputError, match="64"):
        render_scene(0, width, height)


def test_path_walks_by_arc_length_and_keeps_right() -> None:
    path = Polyline([[0, 0], [10, 0], [10, 10]])
    assert path.length == 20
    place, _ = path.at(4.0, 2.0)
    np.testing.assert_allclose(place, [[4.0, 2.0]], atol=0.9)
    straight = Polyline([[0, 0], [30, 0]])
    np.testing.assert_allclose(straight.ribbon(-1, 1, 5, 9), [[5, -1], [9, -1], [9, 1], [5, 1]])


def test_actor_footprint_is_centerd_and_turned() -> None:
    actor = Actor(Kind.CAR, 3.0, 4.0, np.pi / 2, 4.0, 2.0, 1.5, (9, 9, 9), 0)
    np.testing.assert_allclose(actor.footprint.mean(0), (3, 4))
    np.testing.assert_allclose(np.ptp(actor.footprint, axis=0), (2, 4), atol=1e-9)
