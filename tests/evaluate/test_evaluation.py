"""Verdicts per image, on a scene small enough to count."""

from pathlib import Path

from tests.data.folders import write_visdrone
from vgtok.data.dataset import open_annotated
from vgtok.evaluate.detections import detections_of
from vgtok.evaluate.evaluation import apply_protocol, find_mistakes
from vgtok.evaluate.protocols import PROTOCOLS

CARS = "\n".join(["10,10,20,20,1,4,0,0", "50,10,20,20,1,4,0,0", "10,50,20,20,1,4,0,0", "70,60,20,15,0,0,0,0"])


def test_found_missed_and_false_are_counted_at_the_best_threshold(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': CARS, 'b': CARS, 'c': ''})}")
    spots = [
        ("a", [10, 10, 20, 20], 0.9),
        ("a", [50, 10, 20, 20], 0.8),
        ("a", [10, 50, 20, 20], 0.7),
        ("b", [10, 10, 20, 20], 0.9),
        ("b", [80, 10, 10, 10], 0.85),
        ("b", [71, 61, 10, 10], 0.95),
        *[("c", [i, 0, 9, 9], 0.1) for i in range(30)],
    ]
    rows = [{"image_id": stem, "category_id": 4, "bbox": box, "score": score} for stem, box, score in spots]
    scored = apply_protocol(dataset, detections_of(rows, dataset, "test"), PROTOCOLS["visdrone"])
    mistakes = find_mistakes(scored, 500)
    assert mistakes.threshold == 0.7
    assert mistakes.missed.tolist() == [0, 2, 0]
    assert mistakes.false.tolist() == [0, 1, 0]
    assert mistakes.worst(5) == [1]
    assert int(mistakes.found.sum()) == 4


def test_without_detections_everything_is_missed(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': CARS})}")
    scored = apply_protocol(dataset, detections_of([], dataset, "test"), PROTOCOLS["visdrone"])
    assert find_mistakes(scored, 500).missed.tolist() == [3]


def test_crowds_make_detections_neutral(tmp_path: Path) -> None:
    import json

    entries = [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50], "area": 2500, "iscrowd": 1},
        {"id": 2, "image_id": 1, "category_id": 1, "bbox": [60, 60, 10, 10], "area": 100, "iscrowd": 0},
    ]
    document = {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "x"}]}
    (tmp_path / "t.json").write_text(json.dumps({**document, "annotations": entries}))
    dataset = open_annotated(f"coco:{tmp_path / 't.json'}:{tmp_path}")
    boxes = ([5, 5, 9, 9], [20, 20, 9, 9], [60, 60, 10, 10])
    rows = [{"image_id": 1, "category_id": 1, "bbox": box, "score": 0.9} for box in boxes]
    mistakes = find_mistakes(
        apply_protocol(dataset, detections_of(rows, dataset, "test"), PROTOCOLS["coco"]),
        PROTOCOLS["coco"].max_detections,
    )
    assert (int(mistakes.neutral.sum()), int(mistakes.correct.sum())) == (2, 1)
    assert (mistakes.missed.tolist(), mistakes.false.tolist()) == ([0], [0])


def test_precision_and_recall_at_a_score_of_choice(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': CARS})}")
    spots = [([10, 10, 20, 20], 0.9), ([80, 80, 9, 9], 0.6), ([50, 10, 20, 20], 0.5)]
    rows = [{"image_id": "a", "category_id": 4, "bbox": box, "score": score} for box, score in spots]
    scored = apply_protocol(dataset, detections_of(rows, dataset, "test"), PROTOCOLS["visdrone"])
    high, low = (find_mistakes(scored, 500, threshold) for threshold in (0.55, 0.1))
    assert (high.precision, high.recall) == (0.5, 1 / 3)
    assert (low.precision, low.recall) == (2 / 3, 2 / 3)
    assert find_mistakes(scored, 500, 0.95).precision == 0.0
