"""Every format through one interface; whatever is wrong with a file is counted and named."""

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.data.folders import write_visdrone
from vgtok.data.dataset import Role, common_folder, number_images, open_annotated, open_dataset, summarize
from vgtok.data.visdrone import category_of, line_of
from vgtok.errors import InputError

OBJECT = "10,20,30,40,1,4,0,1\n"


def coco(tmp_path: Path, **changes: Any) -> str:
    (tmp_path / "pictures").mkdir(exist_ok=True)
    document = {
        "images": [{"id": 7, "file_name": "b.jpg", "width": 100, "height": 80}],
        "categories": [{"id": 3, "name": "ship"}, {"id": 1, "name": "person"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 9.5, "iscrowd": 0}],
        **changes,
    }
    (tmp_path / "truth.json").write_text(json.dumps(document))
    return f"coco:{tmp_path / 'truth.json'}:{tmp_path / 'pictures'}"


def yolo(tmp_path: Path, labels: str, names: str = "names: [car, bus]") -> str:
    for folder in ("images", "labels"):
        (tmp_path / "set" / folder / "val").mkdir(parents=True)
    Image.new("RGB", (200, 100)).save(tmp_path / "set" / "images" / "val" / "12.png")
    (tmp_path / "set" / "labels" / "val" / "12.txt").write_text(labels)
    (tmp_path / "data.yaml").write_text(f"path: set\nval: images/val\n{names}\n")
    return f"yolo:{tmp_path / 'data.yaml'}"


def test_visdrone_val_holds_what_its_authors_say(visdrone: Path) -> None:
    dataset = open_annotated(f"visdrone:{visdrone}")
    readings = [dataset.parse(i) for i in range(len(dataset.images))]
    roles = Counter(row.role for reading in readings for row in reading.rows)
    assert len(dataset.images) == 548
    assert roles == {Role.OBJECT: 38_759, Role.REGION: 1_378, Role.OTHERS: 32}
    assert not any(reading.problems for reading in readings)


def test_visdrone_tells_objects_regions_and_others_apart(tmp_path: Path) -> None:
    text = OBJECT + "0,0,5,5,0,0,0,0\n1,1,5,5,0,11,0,0\n2,2,5,5,0,9,0,0\n\n"
    dataset = open_dataset(f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': text})}")
    annotations = dataset.annotations(0)
    assert annotations.boxes.tolist() == [[10, 20, 40, 60]]
    assert annotations.labels.tolist() == [3]
    # A bus with score 0 is not scored either: the format's own mark.
    assert annotations.ignored.tolist() == [[0, 0, 5, 5], [1, 1, 6, 6], [2, 2, 7, 7]]


def test_visdrone_names_every_line_it_cannot_use(tmp_path: Path) -> None:
    lines = ["what", "1,2,3", OBJECT.strip(), "5,5,0,9,1,4,0,0", "300,5,9,9,1,4,0,0", "95,5,9,9,1,4,0,0"]
    folder = write_visdrone(tmp_path / "visdrone", {"a": "\n".join(lines)})
    (folder / "annotations" / "lost.txt").write_text(OBJECT)
    dataset = open_annotated(f"visdrone:{folder}")
    reading = dataset.parse(0)
    assert [row.box for row in reading.rows] == [(10, 20, 30, 40), (95, 5, 9, 9)]
    assert summarize([*dataset.problems, *reading.problems]) == [
        "1 x annotation file without an image, skipped: lost.txt",
        "1 x box outside its image, skipped: a.txt, line 5",
        "1 x box partly outside its image, kept as it is: a.txt, line 6",
        "1 x box without area, skipped: a.txt, line 4",
        "2 x line that is not eight numbers, skipped: a.txt, line 1: 'what'; a.txt, line 2: '1,2,3'",
    ]


def test_arrays_come_with_warnings_and_refuse_what_cannot_be_read(tmp_path: Path) -> None:
    odd = write_visdrone(tmp_path / "odd", {"a": OBJECT + "5,5,0,9,1,4,0,0"})
    with pytest.warns(UserWarning, match=r"1 x box without area, skipped: a\.txt, line 2"):
        assert len(open_dataset(f"visdrone:{odd}").annotations(0).boxes) == 1
    broken = write_visdrone(tmp_path / "broken", {"a": OBJECT + "what"})
    with pytest.raises(InputError, match=r"a\.txt, line 2: 'what': line that is not eight numbers"):
        open_dataset(f"visdrone:{broken}").annotations(0)


def test_visdrone_refuses_a_category_it_does_not_have(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': '1,2,3,4,1,12,0,0'})}")
    with pytest.raises(InputError, match=r"a\.txt, line 1: category 12"):
        dataset.parse(0)


def test_coco_keeps_ids_areas_and_crowds(tmp_path: Path) -> None:
    crowd = {"id": 2, "image_id": 7, "category_id": 1, "bbox": [5, 5, 9, 9], "iscrowd": 1}
    region = {"id": 3, "image_id": 7, "category_id": 0, "bbox": [0, 0, 50, 50]}
    entry = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 9.5}
    dataset = open_annotated(coco(tmp_path, annotations=[entry, crowd], ignored_regions=[region]))
    rows = dataset.parse(0).rows
    assert (dataset.names, dataset.category_ids, dataset.image_ids) == (("person", "ship"), (1, 3), (7,))
    assert [(row.role, row.label, row.area) for row in rows] == [
        (Role.OBJECT, 1, 9.5),
        (Role.CROWD, 0, 81),
        (Role.REGION, -1, 2500),
    ]
    assert summarize(dataset.problems)[0].startswith("1 x image file missing, its boxes still count")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annotations": {}}, "not a COCO annotation file"),
        ({"images": []}, "lists no images"),
        ({"images": [{"id": 7, "file_name": "a"}, {"id": 7, "file_name": "b"}]}, "share an id"),
        ({"categories": [{"name": "ship"}]}, "not a COCO annotation file"),
        ({"annotations": [{"id": 5, "image_id": 8, "category_id": 3, "bbox": [0, 0, 1, 1]}]}, "image 8"),
        ({"annotations": [{"id": 5, "image_id": 7, "category_id": 4, "bbox": [0, 0, 1, 1]}]}, "category 4"),
        ({"annotations": [17]}, "without whole image_id"),
    ],
)
def test_coco_refuses_what_contradicts_itself(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_annotated(coco(tmp_path, **changes))


def test_coco_names_annotations_without_a_box(tmp_path: Path) -> None:
    entries = [{"id": 5, "image_id": 7, "category_id": 3, "bbox": box} for box in ([1, 2], ["a", 0, 1, 1], None)]
    reading = open_annotated(coco(tmp_path, annotations=entries)).parse(0)
    assert not reading.rows
    assert summarize(reading.problems)[0].startswith("3 x annotation without a box of four numbers, skipped")


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\x00"])
def test_coco_refuses_what_is_not_json(tmp_path: Path, text: str) -> None:
    spec = coco(tmp_path)
    (tmp_path / "truth.json").write_text(text)
    with pytest.raises(InputError, match=r"truth\.json: not a"):
        open_annotated(spec)


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.none()), max_size=5),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)


@settings(max_examples=200, deadline=None)
@given(
    place=st.sampled_from(["images", "categories", "annotations", "ignored_regions"]),
    key=st.sampled_from(["id", "image_id", "category_id", "bbox", "area", "iscrowd", "file_name", "width", "name"]),
    value=junk,
)
def test_any_coco_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: str, key: str, value: Any
) -> None:
    tmp_path = tmp_path_factory.mktemp("junk")
    region = {"id": 2, "image_id": 7, "category_id": 0, "bbox": [0, 0, 9, 9]}
    spec = coco(tmp_path, ignored_regions=[region])
    document = json.loads((tmp_path / "truth.json").read_text())
    document[place][0][key] = value
    (tmp_path / "truth.json").write_text(json.dumps(document))
    with contextlib.suppress(InputError):
        assert all(np.isfinite(row.box).all() and np.isfinite(row.area) for row in open_annotated(spec).parse(0).rows)


@given(line=st.text(alphabet="0123456789,.-+eEnaif ", max_size=40))
def test_any_visdrone_line_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    folder = write_visdrone(tmp_path_factory.mktemp("junk"), {"a": line}, (20, 20))
    with contextlib.suppress(InputError):
        reading = open_annotated(f"visdrone:{folder}").parse(0)
        assert bool(line.strip()) == bool(reading.rows or reading.problems)


def test_aitodv2_opens_the_split_that_is_named(tmp_path: Path) -> None:
    coco(tmp_path)
    for split, folder in (("val", "val"), ("test", "images")):
        (tmp_path / folder).mkdir()
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations" / f"aitodv2_{split}.json").write_text((tmp_path / "truth.json").read_text())
    assert open_annotated(f"aitodv2:{tmp_path}").images[0].parent.name == "val"
    assert open_annotated(f"aitodv2:{tmp_path}:test").images[0].parent.name == "images"
    assert open_annotated(f"aitodv2:{tmp_path}").name == "aitodv2"
    with pytest.raises(InputError, match="'tset' is not a split"):
        open_annotated(f"aitodv2:{tmp_path}:tset")


def test_yolo_scales_shares_to_pixels(tmp_path: Path) -> None:
    dataset = open_annotated(yolo(tmp_path, "1 0.5 0.5 0.1 0.2\n0 0.25 0.5 0.5 1\n"))
    assert dataset.image_ids == (12,)
    np.testing.assert_allclose(dataset.annotations(0).boxes, [[90, 40, 110, 60], [0, 0, 100, 100]])
    assert dataset.annotations(0).labels.tolist() == [1, 0]


def test_yolo_names_what_it_skips_and_refuses_unknown_classes(tmp_path: Path) -> None:
    reading = open_annotated(yolo(tmp_path, "x\n1 0.5 0.5 0.1\n1 0.5 0.5 0.1 0\n1 1.5 0.5 0.1 0.1\n")).parse(0)
    assert [line.split(":")[0] for line in summarize(reading.problems)] == [
        "1 x box outside its image, skipped",
        "1 x box without area, skipped",
        "2 x line that is not a class and four numbers, skipped",
    ]
    (tmp_path / "set" / "labels" / "val" / "12.txt").write_text("2 0.5 0.5 0.1 0.1")
    with pytest.raises(InputError, match=r"12\.txt, line 1: class 2 is not among the names"):
        open_annotated(f"yolo:{tmp_path / 'data.yaml'}").parse(0)


def test_yolo_takes_names_as_a_mapping_and_a_list_of_images(tmp_path: Path) -> None:
    spec = yolo(tmp_path, "5 0.5 0.5 0.1 0.1", "names: {5: bus, 2: car}")
    (tmp_path / "set" / "list.txt").write_text("./images/val/12.png\n./images/val/gone.png\n")
    (tmp_path / "data.yaml").write_text("path: set\nval: list.txt\nnames: {5: bus, 2: car}\n")
    dataset = open_annotated(spec)
    assert (dataset.names, dataset.category_ids) == (("car", "bus"), (2, 5))
    assert dataset.annotations(0).labels.tolist() == [1]
    assert "gone.png" in summarize(dataset.problems)[0]


@pytest.mark.parametrize("text", ["names: [a", "[1, 2]", "val: images/val", "names: []\nval: images/val", "names: [a]"])
def test_yolo_refuses_other_yaml(tmp_path: Path, text: str) -> None:
    spec = yolo(tmp_path, "")
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(InputError, match=r"data\.yaml"):
        open_annotated(spec)


@pytest.mark.parametrize("spec", ["nowhere", "coco:a.json", "visdrone:", "voc:DIR", "coco:a.json:b"])
def test_specs_that_open_nothing_are_refused(spec: str) -> None:
    with pytest.raises(InputError):
        open_dataset(spec)


def test_a_plain_folder_has_images_but_cannot_be_evaluated(tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "visdrone", {"a": OBJECT}) / "images"
    assert [path.name for path in open_dataset(str(folder)).images] == ["a.jpg"]
    with pytest.raises(InputError, match="plain folder"):
        open_annotated(str(folder))


def test_images_are_numbered_by_their_stems_only_where_all_are_numbers() -> None:
    assert number_images([Path("010.jpg"), Path("9.jpg")]) == (10, 9)
    assert number_images([Path("01.jpg"), Path("1.jpg")]) == (1, 2)
    assert number_images([Path("1.jpg"), Path("b.jpg")]) == (1, 2)


def test_the_common_folder_holds_every_image() -> None:
    assert common_folder([Path("s/a/1.jpg"), Path("s/b/c/1.jpg")]) == Path("s")
    assert common_folder([Path("s/a/1.jpg")]) == Path("s/a")


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_no_image_has_are_no_place_in_one(tmp_path: Path, digits: int) -> None:
    text = f"{'9' * digits},2,3,4.5,1,4,0,0\n10,20,1.5,{'9' * digits},1,4,0,0\n{OBJECT}"
    reading = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': text})}").parse(0)
    assert len(reading.rows) == 1
    assert len(reading.problems) == 2


@pytest.mark.parametrize(
    "names",
    ["names: " + "[" * 5000, "names: 2001-99-99", f"names: {{{'9' * 5000}: car}}", "names: [[car]]", "names: {car: 1}"],
)
def test_a_yaml_of_another_kind_is_one_line_at_once(tmp_path: Path, names: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match=r"data\.yaml: "):
        open_annotated(yolo(tmp_path, "", names))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("place", ["val: {a: b}", "val: [[images]]", 'val: "a\\0b"', f"val: {'n' * 5000}", "path: [a]"])
def test_places_that_are_none_are_refused(tmp_path: Path, place: str) -> None:
    yolo(tmp_path, "")
    (tmp_path / "data.yaml").write_text(f"path: set\nval: images/val\n{place}\nnames: [car]\n")
    with pytest.raises(InputError, match=r"data\.yaml: |no images|neither a folder"):
        open_annotated(f"yolo:{tmp_path / 'data.yaml'}")


@pytest.mark.parametrize(
    "changes",
    [
        {"images": [{"id": 7, "file_name": "a\0b.jpg"}]},
        {"images": [{"id": 10**400, "file_name": "b.jpg"}], "annotations": []},
        {"categories": [{"id": 2**63, "name": "ship"}], "annotations": []},
    ],
)
def test_names_and_ids_nothing_can_hold_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"truth\.json: "):
        open_annotated(coco(tmp_path, **changes))


def test_a_line_that_is_no_text_is_written_anew(tmp_path: Path) -> None:
    entry = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "line": [1], "score": 1}
    (row,) = open_annotated(coco(tmp_path, annotations=[entry])).parse(0).rows
    assert line_of(row, category_of(row)) == "1,2,3,4,1,2,0,0"
