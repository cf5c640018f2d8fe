"""The bootstrap against the evaluator itself: drawn once each it is the evaluation, drawn twice an image is two."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.evaluate.scenes import random_scene
from vgtok.data.dataset import open_annotated
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, GroundTruth, detections_of, top_scoring
from vgtok.evaluate.evaluation import Scored, apply_protocol, evaluate_scored
from vgtok.evaluate.protocols import PROTOCOLS
from vgtok.evaluate.resampling import (
    draws,
    interval,
    mean_and_deviation,
    pooled_deviation,
    resampled_metrics,
    seed_floor,
    standard_error_of_difference,
)

VISDRONE = PROTOCOLS["visdrone"]


def scored_scene(folder: Path, seed: int, images: int = 6) -> Scored:
    scene = random_scene(folder, seed, images)
    dataset = open_annotated(f"visdrone:{scene.folder}")
    return apply_protocol(dataset, detections_of(scene.results, dataset, "results"), VISDRONE)


def drawn(scored: Scored, counts: NDArray[np.int64]) -> Scored:
    """The images laid out as often as they were drawn, each copy an image of its own."""
    copies = np.repeat(np.arange(len(counts)), counts)
    truth, found = scored.truth, scored.detections
    boxes = [np.flatnonzero(truth.image == index) for index in copies]
    kept = [np.flatnonzero(found.image == index) for index in copies]
    chosen, places = np.concatenate(boxes), np.concatenate(kept)
    return Scored(
        replace(
            truth,
            image_ids=np.arange(1, len(copies) + 1),
            boxes=truth.boxes[chosen],
            areas=truth.areas[chosen],
            labels=truth.labels[chosen],
            crowd=truth.crowd[chosen],
            image=np.repeat(np.arange(len(copies)), [len(own) for own in boxes]),
            regions=tuple(truth.regions[index] for index in copies),
        ),
        replace(found.take(places), image=np.repeat(np.arange(len(copies)), [len(own) for own in kept])),
        0,
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_image_once_is_the_evaluation(tmp_path: Path, seed: int) -> None:
    scored = scored_scene(tmp_path, seed)
    expected = evaluate_scored("visdrone", scored, 0, VISDRONE).metrics
    samples = resampled_metrics(scored, VISDRONE, np.ones((1, 6), dtype=np.int64))
    assert samples.keys() == expected.keys()
    for metric, value in expected.items():
        assert samples[metric][0] == pytest.approx(np.nan if value is None else value, nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_resample_is_the_evaluation_of_the_drawn_images(tmp_path: Path, seed: int) -> None:
    scored = scored_scene(tmp_path, seed)
    counts = draws(6, 5, seed)
    samples = resampled_metrics(scored, VISDRONE, counts)
    for number, row in enumerate(counts):
        expected = evaluate_scored("visdrone", drawn(scored, row), 0, VISDRONE).metrics
        for metric, value in expected.items():
            assert samples[metric][number] == pytest.approx(np.nan if value is None else value, nan_ok=True)


def test_crowds_take_in_any_number_of_detections() -> None:
    random = np.random.default_rng(0)
    image = np.repeat(np.arange(5), 8)
    boxes = np.c_[random.uniform(0, 60, (40, 2)), random.uniform(8, 40, (40, 2))]
    crowd = random.random(40) < 0.3
    areas = boxes[:, 2] * boxes[:, 3]
    labels = random.integers(0, 2, 40)
    truth = GroundTruth(("a", "b"), np.arange(1, 6), boxes, areas, labels, crowd, image, (np.zeros((0, 4)),) * 5, 0, ())
    near = np.tile(boxes, (3, 1)) + random.uniform(-4, 4, (120, 4))
    found = Detections(near, random.random(120), np.tile(labels, 3), np.tile(image, 3))
    scored = Scored(truth, top_scoring(found, 100), 0)
    counts = np.vstack([np.ones((1, 5), dtype=np.int64), draws(5, 6, 1)])
    samples = resampled_metrics(scored, PROTOCOLS["coco"], counts)
    for number, row in enumerate(counts):
        expected = evaluate_scored("coco", drawn(scored, row), 0, PROTOCOLS["coco"]).metrics
        for metric, value in expected.items():
            assert samples[metric][number] == pytest.approx(np.nan if value is None else value, nan_ok=True)


def test_draws_take_as_many_images_as_there_are() -> None:
    counts = draws(50, 200)
    assert counts.shape == (200, 50)
    assert (counts.sum(axis=1) == 50).all()
    assert (draws(50, 200) == counts).all()
    assert (draws(50, 200, seed=1) != counts).any()


def test_the_interval_is_the_middle_of_what_exists() -> None:
    low, high = interval(np.r_[np.linspace(0, 100, 101), np.nan])
    assert (low, high) == pytest.approx((2.5, 97.5))
    assert np.isnan(interval(np.array([np.nan]))).all()


def test_runs_at_the_papers_operating_point() -> None:
    mean, deviation = mean_and_deviation([44.11, 44.26, 44.30])
    assert (round(mean, 2), round(deviation, 2)) == (44.22, 0.10)


@pytest.mark.parametrize(("pooled", "error", "floor"), [(0.0974, 0.0795, 0.16), (0.1342, 0.1095, 0.22)])
def test_the_papers_floors_follow_from_its_pooled_deviations(pooled: float, error: float, floor: float) -> None:
    # The paper's standard errors come from unrounded deviations, so the last digit may differ by one.
    assert standard_error_of_difference(pooled) == pytest.approx(error, abs=1e-4)
    assert round(seed_floor(pooled), 2) == floor


def test_pooling_averages_variances() -> None:
    assert pooled_deviation([3.0, 4.0]) == pytest.approx((12.5) ** 0.5)
    with pytest.raises(InputError):
        pooled_deviation([])
    with pytest.raises(InputError):
        mean_and_deviation([1.0])
