"""COCO files and AI-TOD-v2: ids, areas and crowds are kept, and any other file is refused in one line."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok.data.dataset import Role, open_annotated, summarize
from vgtok.data.visdrone import category_of, line_of
from vgtok.errors import InputError


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


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.none()), max_size=5),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)


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
