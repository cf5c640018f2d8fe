"""A detector over a data set: classes meet by name, boxes arrive as the data set counts them."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.folders import write_visdrone
from tests.detect.small_models import small_detector
from vgtok.data.dataset import open_annotated
from vgtok.errors import InputError
from vgtok.evaluate.classes import label_map
from vgtok.evaluate.detections import run_detector
from vgtok.tokenize.tokenizer import Tokenizer

READER = Tokenizer(0.5, canvas=small_detector().canvas)


def test_classes_meet_by_name() -> None:
    labels = label_map(("Car", "zeppelin", "awning_tricycle"), ("awning-tricycle", "bus", "car"))
    assert labels.tolist() == [2, -1, 0]


def test_detections_are_those_of_each_image(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'v', {'a': '', 'b': '', 'c': ''})}")
    (tmp_path / "v" / "images" / "b.jpg").unlink()
    detector = small_detector()
    run = run_detector(detector, dataset, READER, 7)
    assert run.missing_images == 1
    assert set(run.detections.image.tolist()) == {0, 2}
    alone = detector(dataset.images[2], budget=0.5, max_detections=7, score_threshold=0.0)
    mine = run.detections.take(run.detections.image == 2)
    np.testing.assert_allclose(mine.boxes[:, :2], alone.boxes[:, :2])
    np.testing.assert_allclose(mine.boxes[:, :2] + mine.boxes[:, 2:], alone.boxes[:, 2:])
    assert [dataset.names[label] for label in mine.labels] == list(alone.names)
    assert "car" not in run.missing_classes
    assert run.unused_classes == ()


def test_a_model_of_other_things_is_refused(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'v', {'a': ''})}")
    with pytest.raises(InputError, match=r"none of its classes \(cat, dog"):
        run_detector(small_detector(names=("cat", "dog")), dataset, READER, 7)
