"""Paired comparison: the difference is that of the evaluator, and its interval knows a real one from none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evaluate.scenes import random_scene
from vgtok import InputError
from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.evaluate.comparison import compare_scored, results_rows
from vgtok.evaluate.detections import Detections, detections_of
from vgtok.evaluate.evaluation import apply_protocol, evaluate
from vgtok.evaluate.protocols import protocol_for

RULES = protocol_for("visdrone", "visdrone", None)


def scene(folder: Path, images: int = 40) -> tuple[AnnotatedDataset, Detections]:
    made = random_scene(folder, 5, images)
    dataset = open_annotated(f"visdrone:{made.folder}")
    return dataset, detections_of(made.results, dataset, "made")


def test_the_difference_is_that_of_the_evaluator(tmp_path: Path) -> None:
    dataset, found = scene(tmp_path)
    fewer = found.take(np.random.default_rng(0).random(len(found)) < 0.5)
    rows = compare_scored(apply_protocol(dataset, found, RULES), apply_protocol(dataset, fewer, RULES), RULES, 100)
    whole, half = evaluate(dataset, found, RULES), evaluate(dataset, fewer, RULES)
    for row in rows:
        assert row.value == pytest.approx(whole.metrics[row.metric], abs=1e-6)
        assert row.other == pytest.approx(half.metrics[row.metric], abs=1e-6)
        assert row.difference == pytest.approx(row.value - row.other)
        assert row.low < row.high
    best = {row.metric: row for row in rows}["AP50"]
    assert best.difference > 0
    assert best.significant
    assert best.low < best.difference < best.high


def test_noise_is_not_significant(tmp_path: Path) -> None:
    dataset, found = scene(tmp_path)
    random = np.random.default_rng(1)
    scored = apply_protocol(dataset, found, RULES)
    verdicts = []
    for _ in range(10):
        shuffled = replace(found, scores=np.clip(found.scores + random.normal(0, 0.02, len(found)), 0, 1))
        rows = compare_scored(scored, apply_protocol(dataset, shuffled, RULES), RULES, 100)
        verdicts.append({row.metric: row for row in rows}["AP"].significant)
    assert sum(verdicts) <= 3
    same = compare_scored(scored, scored, RULES, 20)
    assert all((row.difference, row.low, row.high, row.verdict) == (0, 0, 0, "not significant") for row in same)


def test_one_image_has_no_interval(tmp_path: Path) -> None:
    dataset, found = scene(tmp_path, 1)
    scored = apply_protocol(dataset, found, RULES)
    with pytest.raises(InputError, match="needs two images or more"):
        compare_scored(scored, scored, RULES)


def test_written_rows_are_read_back(tmp_path: Path) -> None:
    dataset, found = scene(tmp_path)
    again = detections_of(results_rows(found, dataset), dataset, "again")
    np.testing.assert_allclose(again.boxes, found.boxes, atol=1e-3)
    np.testing.assert_allclose(again.scores, found.scores, atol=1e-6)
    assert (again.labels == found.labels).all()
    assert (again.image == found.image).all()
