"""Between formats: what both hold survives to the byte, what is lost is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.folders import write_visdrone
from vgtok.data.convert import convert_dataset, write_rendered
from vgtok.data.dataset import open_annotated
from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.errors import InputError

LINES = [
    "10,20,30,40,1,4,0,1",
    "0,0,50,50,0,0,0,0",
    "60,10,5,6,1,1,1,2,",
    "50,50,5,5,0,11,0,0",
    "1.5,2,3,4,1,10,0,0",
    "07,2,3,4,0,9,0,0",
]


def lines(folder: Path) -> list[str]:
    return (folder / "annotations" / "a.txt").read_text().splitlines()


def test_visdrone_val_returns_from_coco_to_the_byte(visdrone: Path, tmp_path: Path) -> None:
    there = convert_dataset(open_annotated(f"visdrone:{visdrone}"), "coco", tmp_path / "val.json")
    back = convert_dataset(open_annotated(there.spec), "visdrone", tmp_path / "back")
    assert (back.images, back.objects, back.regions, back.others) == (548, 38_759, 1_378, 32)
    assert (back.lost, back.problems) == ((), ())
    for path in (visdrone / "annotations").iterdir():
        assert (tmp_path / "back" / "annotations" / path.name).read_bytes() == path.read_bytes()


def test_every_valid_line_returns_as_it_was_written(tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "visdrone", {"a": "\n".join([*LINES, "broken"]), "b": ""})
    there = convert_dataset(open_annotated(f"visdrone:{folder}"), "coco", tmp_path / "val.json")
    back = convert_dataset(open_annotated(there.spec), "visdrone", tmp_path / "back")
    # Half a pixel has no place in VisDrone, and that it moved is said.
    assert lines(tmp_path / "back")[:4] == LINES[:4]
    assert lines(tmp_path / "back")[5] == LINES[5]
    assert back.lost == ("1 x box moved to whole pixels",)
    assert there.problems == ("1 x line that is not eight numbers, skipped: a.txt, line 7: 'broken'",)
    assert (tmp_path / "back" / "annotations" / "b.txt").read_text() == ""
    assert (tmp_path / "back" / "images" / "a.jpg").read_bytes() == (folder / "images" / "a.jpg").read_bytes()


fields = st.tuples(
    st.integers(0, 60),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 1),
    st.integers(0, 11),
    st.integers(0, 1),
    st.integers(0, 2),
)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(fields, max_size=6), comma=st.booleans())
def test_any_lines_survive_the_round_trip(
    rows: list[tuple[int, ...]], comma: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("trip")
    written = [",".join(map(str, row)) + "," * comma for row in rows]
    folder = write_visdrone(tmp_path / "source", {"a": "\n".join(written)})
    there = convert_dataset(open_annotated(f"visdrone:{folder}"), "coco", tmp_path / "val.json")
    convert_dataset(open_annotated(there.spec), "visdrone", tmp_path / "back")
    assert lines(tmp_path / "back") == written


def test_coco_files_hold_ten_categories_and_keep_regions_apart(tmp_path: Path) -> None:
    result = convert_dataset(
        open_annotated(f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': chr(10).join(LINES)})}"),
        "coco",
        tmp_path / "v.json",
    )
    document = json.loads((tmp_path / "v.json").read_text())
    assert [category["id"] for category in document["categories"]] == list(range(1, 11))
    assert [entry["id"] for entry in document["annotations"]] == [1, 3, 5]
    assert [entry["category_id"] for entry in document["ignored_regions"]] == [0, 11, 9]
    assert (result.objects, result.regions, result.others) == (3, 1, 2)
    assert "only this library reads back" in result.lost[0]


def test_yolo_brings_boxes_back_and_says_what_it_dropped(tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "visdrone", {"a": "\n".join(LINES[:4])})
    there = convert_dataset(open_annotated(f"visdrone:{folder}"), "yolo", tmp_path / "yolo")
    assert there.lost == (
        "1 x others left out: YOLO has nothing that is not scored",
        "1 x region left out: YOLO has nothing that is not scored",
        "2 x truncation or occlusion mark",
    )
    convert_dataset(open_annotated(there.spec), "visdrone", tmp_path / "back")
    assert lines(tmp_path / "back") == ["10,20,30,40,1,4,0,0", "60,10,5,6,1,1,0,0"]
    back = convert_dataset(open_annotated(there.spec), "coco", tmp_path / "back.json")
    assert (back.objects, back.lost) == (2, ())


def test_classes_visdrone_lacks_are_counted_or_refused(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    document: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 50, "height": 50}],
        "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "ship"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "area": 12, "iscrowd": 0},
            {"id": 2, "image_id": 1, "category_id": 2, "bbox": [1, 1, 5, 5], "area": 25, "iscrowd": 0},
            {"id": 3, "image_id": 1, "category_id": 1, "bbox": [2, 2, 5, 5], "area": 25, "iscrowd": 1},
        ],
    }
    truth = tmp_path / "t.json"
    truth.write_text(json.dumps(document))
    result = convert_dataset(open_annotated(f"coco:{truth}:{tmp_path / 'pictures'}"), "visdrone", tmp_path / "out")
    assert lines(tmp_path / "out") == ["1,1,5,5,1,4,0,0", "2,2,5,5,0,4,0,0"]
    assert result.lost == (
        "1 x area of an outline: only the box is kept",
        "1 x box of class 'ship', which VisDrone does not have, left out",
        "1 x crowd written as an object VisDrone does not score (score 0)",
    )
    document["categories"][0]["name"] = "boat"
    truth.write_text(json.dumps(document))
    with pytest.raises(InputError, match="knows none of the classes"):
        convert_dataset(open_annotated(f"coco:{truth}:{tmp_path / 'pictures'}"), "visdrone", tmp_path / "out")


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    dataset = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': ''})}")
    with pytest.raises(InputError, match="'voc' is not a format"):
        convert_dataset(dataset, "voc", tmp_path)


def test_a_line_edited_in_the_json_is_written_as_edited(tmp_path: Path) -> None:
    there = convert_dataset(
        open_annotated(f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': LINES[2]})}"),
        "coco",
        tmp_path / "v.json",
    )
    document = json.loads((tmp_path / "v.json").read_text())
    document["annotations"][0]["bbox"] = [1, 1, 2, 2]
    (tmp_path / "v.json").write_text(json.dumps(document))
    convert_dataset(open_annotated(there.spec), "visdrone", tmp_path / "back")
    assert lines(tmp_path / "back") == ["1,1,2,2,1,1,1,2"]


def test_where_links_are_not_allowed_images_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where only administrators may make links."""

    def refuse(self: Path, target: Path, target_is_directory: bool = False) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    folder = write_visdrone(tmp_path / "visdrone", {"a": LINES[0]})
    monkeypatch.setattr(Path, "symlink_to", refuse)
    convert_dataset(open_annotated(f"visdrone:{folder}"), "yolo", tmp_path / "yolo")
    copied = tmp_path / "yolo" / "images" / "a.jpg"
    assert not copied.is_symlink()
    assert copied.read_bytes() == (folder / "images" / "a.jpg").read_bytes()


def test_the_set_holds_the_scenes(tmp_path: Path) -> None:
    dataset = open_annotated(write_rendered(tmp_path, [5, 2**31], 192, 128, SceneConfig(traffic=1.0)))
    assert [path.stem for path in dataset.images] == ["0000000005", "2147483648"]
    for index, seed in enumerate((5, 2**31)):
        scene = render_scene(seed, 192, 128, SceneConfig(traffic=1.0))
        np.testing.assert_allclose(dataset.annotations(index).boxes, scene.boxes, atol=1e-4)
        assert dataset.annotations(index).labels.tolist() == scene.labels.tolist()
        assert dataset.size(index) == (192, 128)


def test_a_complete_set_is_not_rendered_again(tmp_path: Path) -> None:
    spec = write_rendered(tmp_path, [5], 128, 128, SceneConfig())
    before = (tmp_path / "annotations.json").read_bytes()
    assert write_rendered(tmp_path, [6, 7], 128, 128, SceneConfig()) == spec
    assert (tmp_path / "annotations.json").read_bytes() == before
