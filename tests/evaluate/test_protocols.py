"""The numbers against pycocotools, against a brute-force matcher, and on cases small enough to check by eye."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tests.data.folders import write_visdrone
from tests.evaluate.brute_force import average_precision
from tests.evaluate.scenes import coco_files, random_scene
from vgtok.data.coco import open_coco
from vgtok.data.dataset import AnnotatedDataset, Role, open_annotated
from vgtok.errors import InputError
from vgtok.evaluate.detections import detections_of, read_predictions
from vgtok.evaluate.evaluation import Evaluation, evaluate
from vgtok.evaluate.protocols import PROTOCOLS, covered, disjoint, protocol_for


def score(dataset: AnnotatedDataset, results: list[dict[str, Any]], protocol: str = "visdrone") -> Evaluation:
    return evaluate(dataset, detections_of(results, dataset, "test"), PROTOCOLS[protocol])


def pycocotools_points(truth: Path, results: Path, cap: int, ranges: list[list[float]]) -> list[float | None]:
    """AP of each area range, then AP50 and AP75 of the first."""
    with contextlib.redirect_stdout(io.StringIO()):
        ground_truth = COCO(str(truth))
        evaluator = COCOeval(ground_truth, ground_truth.loadRes(str(results)), "bbox")
        evaluator.params.maxDets = [cap]
        evaluator.params.areaRng = ranges
        evaluator.params.areaRngLbl = [str(i) for i in range(len(ranges))]
        evaluator.evaluate()
        evaluator.accumulate()
    precision = evaluator.eval["precision"][..., 0]
    slices = [*(precision[:, :, :, i] for i in range(len(ranges))), precision[0, :, :, 0], precision[5, :, :, 0]]
    return [100 * float(part[part > -1].mean()) if (part > -1).any() else None for part in slices]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cap", [1, 10, 100])
def test_coco_equals_pycocotools(tmp_path: Path, seed: int, cap: int) -> None:
    truth, results = coco_files(tmp_path, seed)
    dataset = open_coco(truth, tmp_path)
    ours = evaluate(dataset, read_predictions(results, dataset), protocol_for("coco", "coco", cap)).metrics
    ranges = [[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]]
    theirs = pycocotools_points(truth, results, cap, ranges)
    names = ("AP", "APS", "APM", "APL", "AP50", "AP75")
    assert [ours[name] for name in names] == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_aitodv2_bands_equal_pycocotools_with_the_benchmarks_ranges(tmp_path: Path, seed: int) -> None:
    truth, results = coco_files(tmp_path, seed, largest=40.0)
    dataset = open_coco(truth, tmp_path)
    ours = evaluate(dataset, read_predictions(results, dataset), PROTOCOLS["aitodv2"])
    ranges = [[0, 1e10], [0, 64], [64, 256], [256, 1024], [1024, 1e10]]
    theirs = pycocotools_points(truth, results, 1500, ranges)
    names = ("AP", "APvt", "APt", "APs", "APm", "AP50", "AP75")
    assert [ours.metrics[name] for name in names] == pytest.approx(theirs, abs=1e-6)
    shares = [result.share for result in ours.band_classes if result.share is not None]
    assert sum(shares) == pytest.approx(ours.metrics["APvt"])
    assert sum(result.boxes for result in ours.band_classes) == ours.band_boxes["APvt"]
    assert sum(ours.band_boxes.values()) == ours.instances
    assert (ours.max_detections, ours.images) == (1500, 4)


def test_three_hundred_perfect_boxes_are_all_counted_at_500_and_not_at_100(tmp_path: Path) -> None:
    text = "\n".join(f"{4 * (i % 20)},{4 * (i // 20)},3,3,1,1,0,0" for i in range(300))
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': text})}")
    results = [
        {"image_id": "a", "category_id": 1, "bbox": list(row.box), "score": 0.9} for row in dataset.parse(0).rows
    ]
    assert score(dataset, results).metrics["AP"] == 100.0
    assert evaluate(dataset, detections_of(results, dataset, ""), protocol_for("coco", "", 500)).metrics["AP"] == 100.0
    assert evaluate(dataset, detections_of(results, dataset, ""), protocol_for("coco", "", None)).metrics["AP"] < 40  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("protocol", ["visdrone", "visdrone-toolkit"])
def test_visdrone_equals_the_brute_force_matcher(tmp_path: Path, seed: int, protocol: str) -> None:
    scene = random_scene(tmp_path, seed)
    dataset = open_annotated(f"visdrone:{scene.folder}")
    ours = score(dataset, scene.results, protocol).metrics
    drops = protocol == "visdrone-toolkit"
    for name, band in (("AP", (0, 1e10)), ("APS", (0, 32**2)), ("APM", (32**2, 96**2))):
        theirs = average_precision(scene.lines, scene.results, drops_boxes=drops, band=band, cap=500)
        assert (ours[name] is None) == (theirs is None)
        if theirs is not None:
            assert ours[name] == pytest.approx(theirs, abs=1e-9)


def visdrone(tmp_path: Path, *lines: str) -> AnnotatedDataset:
    return open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': chr(10).join(lines)})}")


def detection(bbox: list[float], category: int = 4, score: float = 0.5) -> dict[str, Any]:
    return {"image_id": "a", "category_id": category, "bbox": bbox, "score": score}


CAR = "50,50,20,20,1,4,0,0"
REGION = "0,0,40,40,0,0,0,0"
HIT = detection([50, 50, 20, 20], score=0.4)


@pytest.mark.parametrize(
    ("bbox", "ignored"),
    [
        ([10, 10, 10, 10], True),  # wholly inside
        ([30, 0, 20, 10], True),  # half inside, to the pixel
        ([31, 0, 20, 10], False),  # a pixel less
        ([60, 10, 10, 10], False),
    ],
)
def test_half_of_the_area_decides(tmp_path: Path, bbox: list[float], ignored: bool) -> None:
    result = score(visdrone(tmp_path, CAR, REGION), [detection(bbox, score=0.9), HIT])
    assert result.ignored == int(ignored)
    assert result.metrics["AP50"] == pytest.approx(100.0 if ignored else 50.0)


def test_regions_count_as_one_area_and_not_one_by_one(tmp_path: Path) -> None:
    halves = ("0,0,10,40,0,0,0,0", "5,0,10,40,0,0,0,0", "12,0,3,40,0,11,0,0")
    # 3 + 8 columns of 20: more than half of the union, though no region holds half.
    assert score(visdrone(tmp_path, CAR, *halves), [detection([4, 5, 20, 10])]).ignored == 1
    # 9 columns of the union; counting the overlap twice would make 10 and more.
    assert score(visdrone(tmp_path, CAR, *halves), [detection([6, 5, 20, 10])]).ignored == 0


def test_a_detection_that_finds_a_box_inside_a_region_counts(tmp_path: Path) -> None:
    dataset = visdrone(tmp_path, "10,10,20,20,1,4,0,0", REGION)
    assert score(dataset, [detection([10, 10, 20, 20])]).metrics["AP"] == 100.0
    # IoU 0.5 exactly: 10 of 20 rows.
    assert score(dataset, [detection([10, 10, 20, 10])]).ignored == 0
    assert score(dataset, [detection([10, 10, 20, 9])]).ignored == 1
    # The box of another class saves nothing.
    assert score(dataset, [detection([10, 10, 20, 20], category=5)]).ignored == 1
    # Missed, the box inside the region is a miss all the same.
    assert score(dataset, []).metrics["AP"] == 0.0


def test_the_toolkit_drops_the_box_as_well_and_heeds_no_others(tmp_path: Path) -> None:
    dataset = visdrone(tmp_path, CAR, "10,10,20,20,1,4,0,0", REGION, "80,60,10,10,0,11,0,0")
    results = [HIT, detection([80, 60, 10, 10], score=0.9)]
    strict = score(dataset, results, "visdrone-toolkit")
    assert (strict.instances, strict.ignored) == (1, 0)
    assert strict.metrics["AP50"] == pytest.approx(50.0)
    ours = score(dataset, results)
    assert (ours.instances, ours.ignored) == (2, 1)


def test_ignored_detections_do_not_use_up_the_cap(tmp_path: Path) -> None:
    dataset = visdrone(tmp_path, CAR, REGION)
    crowd = [detection([5, 5, 10, 10], score=0.9) for _ in range(600)]
    assert score(dataset, [*crowd, HIT]).metrics["AP"] == 100.0


def test_predictions_only_inside_regions_change_nothing(tmp_path: Path) -> None:
    for seed in range(5):
        scene = random_scene(tmp_path / str(seed), seed)
        dataset = open_annotated(f"visdrone:{scene.folder}")
        inside = [
            {"image_id": stem, "category_id": 9, "bbox": list(row[:4]), "score": 0.99}
            for stem, rows in scene.lines.items()
            for row in rows
            if row[5] == 0
        ]
        for protocol in ("visdrone", "visdrone-toolkit"):
            before, after = score(dataset, scene.results, protocol), score(dataset, scene.results + inside, protocol)
            assert before.metrics == after.metrics
            assert after.ignored == before.ignored + len(inside)


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_the_order_of_the_file_changes_nothing_even_between_equal_scores(tmp_path: Path, protocol: str) -> None:
    scene = random_scene(tmp_path, 3, images=6)
    dataset = open_annotated(f"visdrone:{scene.folder}")
    results = [{**result, "score": round(result["score"], 1)} for result in scene.results]
    before = score(dataset, results, protocol).to_dict()
    for seed in range(5):
        shuffled = [results[i] for i in np.random.default_rng(seed).permutation(len(results))]
        assert score(dataset, shuffled, protocol).to_dict() == before


def test_perfect_predictions_on_val_are_perfect(visdrone: Path) -> None:
    dataset = open_annotated(f"visdrone:{visdrone}")
    results = [
        {"image_id": path.name, "category_id": row.label + 1, "bbox": list(row.box), "score": 1.0}
        for index, path in enumerate(dataset.images)
        for row in dataset.parse(index).rows
        if row.role is Role.OBJECT
    ]
    for protocol, instances in (("visdrone", 38_759), ("visdrone-toolkit", 38_602)):
        result = score(dataset, results, protocol)
        assert (result.metrics["AP"], result.metrics["AP50"], result.metrics["AP75"]) == (100.0, 100.0, 100.0)
        assert (result.images, result.instances, result.max_detections) == (548, instances, 500)


def test_a_coco_file_made_from_visdrone_scores_the_same(tmp_path: Path) -> None:
    from vgtok.data.convert import convert_dataset

    scene = random_scene(tmp_path / "v", 1)
    dataset = open_annotated(f"visdrone:{scene.folder}")
    converted = open_annotated(convert_dataset(dataset, "coco", tmp_path / "v.json").spec)
    for protocol in ("visdrone", "visdrone-toolkit"):
        assert score(converted, scene.results, protocol).metrics == score(dataset, scene.results, protocol).metrics


def test_regions_a_protocol_does_not_know_are_mentioned(tmp_path: Path) -> None:
    result = score(visdrone(tmp_path, CAR, REGION), [HIT], "coco")
    assert result.notes == ("1 ignored regions or others of the data play no part in protocol coco",)


def test_bands_without_boxes_have_no_ap(tmp_path: Path) -> None:
    result = score(visdrone(tmp_path, CAR), [HIT])
    assert result.metrics["APL"] is None
    assert json.loads(json.dumps(result.to_dict()))["APL"] is None
    assert [entry.ap is None for entry in result.classes] == [entry.name != "car" for entry in result.classes]


def test_data_sets_are_scored_by_their_own_protocol_and_cap() -> None:
    assert protocol_for(None, "visdrone", None).max_detections == 500
    assert protocol_for(None, "aitodv2", None).max_detections == 1500
    assert protocol_for(None, "yolo", None).name == "coco"
    assert protocol_for("coco", "visdrone", 300).max_detections == 300
    with pytest.raises(InputError, match="fixes its cap at 500"):
        protocol_for("visdrone", "visdrone", 100)
    with pytest.raises(InputError, match="is not a protocol"):
        protocol_for("voc", "visdrone", None)
    with pytest.raises(InputError, match="1 or more"):
        protocol_for("coco", "visdrone", 0)


corners = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 12), st.integers(1, 12)).map(
    lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])
)


def painted(boxes: list[tuple[int, ...]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    canvas = np.zeros((40, 40), dtype=np.int64)
    for x0, y0, x1, y1 in boxes:
        canvas[y0:y1, x0:x1] += 1
    return canvas


@given(regions=st.lists(corners, max_size=8))
def test_disjoint_rectangles_cover_the_union_once(regions: list[tuple[int, ...]]) -> None:
    parts = [tuple(map(int, part)) for part in disjoint(np.array(regions, dtype=np.float64).reshape(-1, 4))]
    assert np.array_equal(painted(parts), painted(regions) > 0)


@given(regions=st.lists(corners, max_size=6), boxes=st.lists(corners, min_size=1, max_size=5))
def test_covered_is_the_share_of_painted_pixels(regions: list[tuple[int, ...]], boxes: list[tuple[int, ...]]) -> None:
    union = painted(regions) > 0
    expected = [union[y0:y1, x0:x1].mean() for x0, y0, x1, y1 in boxes]
    sizes = np.array([(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes], dtype=np.float64)
    shares = covered(sizes, np.array(regions, dtype=np.float64).reshape(-1, 4))
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_a_box_without_area_lies_nowhere() -> None:
    assert covered(np.array([[1.0, 1, 0, 5]]), np.array([[0.0, 0, 9, 9]])).tolist() == [0.0]
