"""Results files: images by any of their names, and one clear sentence for whatever cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.folders import write_visdrone
from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, detections_of, image_names, read_predictions, top_scoring

GOOD: dict[str, Any] = {"image_id": "b", "category_id": 4, "bbox": [1, 2, 3, 4.5], "score": 0.5}


@pytest.fixture
def dataset(tmp_path: Path) -> AnnotatedDataset:
    return open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': '', 'b': ''})}")


@pytest.mark.parametrize("name", [2, "b.jpg", "b"])
def test_images_go_by_id_file_name_or_stem(dataset: AnnotatedDataset, name: int | str) -> None:
    detections = detections_of([{**GOOD, "image_id": name}], dataset, "file")
    assert detections.image.tolist() == [1]
    assert detections.labels.tolist() == [3]
    assert detections.boxes.tolist() == [[1, 2, 3, 4.5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 3}, "image_id 3 is unknown"),
        ({"image_id": "c.jpg"}, "image_id 'c.jpg' is unknown"),
        ({"image_id": True}, "image_id True is unknown"),
        ({"image_id": [1]}, r"image_id \[1\] is unknown"),
        ({"category_id": 11}, "category_id 11 is unknown: the data has 1, 2, 3"),
        ({"category_id": 1.0}, "category_id 1.0 is unknown"),
        ({"score": float("nan")}, "score nan is not a finite number"),
        ({"score": float("inf")}, "score inf is not a finite number"),
        ({"score": 10**400}, "is not a finite number"),
        ({"bbox": [1, 2, 10**400, 4]}, "is not x, y, width, height"),
        ({"score": "0.9"}, "score '0.9' is not a number"),
        ({"score": None}, "score None is not a number"),
        ({"bbox": [1, 2, 3]}, r"bbox \[1, 2, 3\] is not x, y, width, height"),
        ({"bbox": "1234"}, "bbox 1234 is not x, y, width, height"),
        ({"bbox": [1, 2, "3", 4]}, "is not x, y, width, height"),
        ({"bbox": [1, 2, float("nan"), 4]}, "is not x, y, width, height"),
        ({"bbox": [1, 2, -3, 4]}, "has a negative size"),
    ],
)
def test_the_first_bad_detection_is_named(dataset: AnnotatedDataset, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"file: detection 2: .*{message}"):
        detections_of([GOOD, {**GOOD, **change}], dataset, "file")


@pytest.mark.parametrize("row", [17, {"image_id": 1}, None])
def test_rows_that_are_no_detections_are_named(dataset: AnnotatedDataset, row: Any) -> None:
    with pytest.raises(InputError, match="detection 2: lacks one of image_id, category_id, bbox, score"):
        detections_of([GOOD, row], dataset, "file")


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "\x00\x01"])
def test_files_that_are_no_results_are_refused(dataset: AnnotatedDataset, tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"results\.json: not a"):
        read_predictions(path, dataset)
    with pytest.raises(InputError, match="cannot be read"):
        read_predictions(tmp_path / "absent.json", dataset)


def test_no_detections_are_detections_too(dataset: AnnotatedDataset, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("[]")
    detections = read_predictions(path, dataset)
    assert len(top_scoring(detections, 500)) == 0
    assert detections.boxes.shape == (0, 4)


def test_a_name_two_images_share_names_neither(tmp_path: Path) -> None:
    images = [{"id": 5, "file_name": "x/1.jpg"}, {"id": 6, "file_name": "y/1.jpg"}]
    (tmp_path / "t.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    names = image_names(open_annotated(f"coco:{tmp_path / 't.json'}:{tmp_path}"))
    assert names == {5: 0, 6: 1, "x/1.jpg": 0, "x/1": 0, "y/1.jpg": 1, "y/1": 1}


def test_the_cap_keeps_the_best_of_each_class_and_image() -> None:
    random = np.random.default_rng(0)
    everything = Detections(
        random.random((400, 4)), random.random(400), random.integers(3, size=400), random.integers(4, size=400)
    )
    kept = top_scoring(everything, 7)
    for image in range(4):
        for label in range(3):
            group = (everything.image == image) & (everything.labels == label)
            best = np.sort(everything.scores[group])[::-1][:7]
            assert np.array_equal(kept.scores[(kept.image == image) & (kept.labels == label)], best)
