"""Data sets by name: VisDrone's text files, COCO json, plain folders, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vgtok.data.dataset import common_folder, open_annotated, open_dataset
from vgtok.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "annotations").mkdir()
    Image.new("RGB", (40, 30)).save(tmp_path / "images" / "b.jpg")
    Image.new("RGB", (40, 30)).save(tmp_path / "images" / "a.jpg")
    (tmp_path / "annotations" / "a.txt").write_text("1,2,10,20,1,4,0,0\n0,0,5,5,0,0,0,0\n3,3,4,4,1,11,0,0,\n\n")
    (tmp_path / "annotations" / "b.txt").write_text("")
    return tmp_path


def test_visdrone_scores_ten_classes_and_ignores_the_rest(folder: Path) -> None:
    dataset = open_dataset(f"visdrone:{folder}")
    assert [path.name for path in dataset.images] == ["a.jpg", "b.jpg"]
    assert len(dataset.names) == 10
    truth = dataset.annotations(0)
    assert truth.boxes.tolist() == [[1, 2, 11, 22]]
    assert dataset.names[truth.labels[0]] == "car"
    assert truth.ignored.tolist() == [[0, 0, 5, 5], [3, 3, 7, 7]]
    assert dataset.annotations(1).boxes.shape == (0, 4)


def test_visdrone_errors_name_file_and_line(folder: Path) -> None:
    (folder / "annotations" / "a.txt").write_text("1,2,10,20,1,4,0,0\n1,2,x\n")
    with pytest.raises(InputError, match=r"a\.txt, line 2"):
        open_dataset(f"visdrone:{folder}").annotations(0)
    (folder / "annotations" / "b.txt").unlink()
    with pytest.raises(InputError, match=r"b\.txt: cannot be read"):
        open_dataset(f"visdrone:{folder}").annotations(1)


def test_aitodv2_is_a_coco_file_with_crowds_ignored(folder: Path) -> None:
    document = {
        "images": [{"id": 7, "file_name": "b.jpg"}, {"id": 3, "file_name": "a.jpg"}],
        "categories": [{"id": 2, "name": "ship"}, {"id": 1, "name": "airplane"}],
        "annotations": [
            {"image_id": 7, "category_id": 2, "bbox": [1, 2, 3, 4]},
            {"image_id": 7, "category_id": 1, "bbox": [0, 0, 9, 9], "iscrowd": 1},
        ],
    }
    (folder / "annotations" / "aitodv2_val.json").write_text(json.dumps(document))
    dataset = open_dataset(f"aitodv2:{folder}")
    assert dataset.name == "aitodv2"
    assert dataset.names == ("airplane", "ship")
    assert [path.name for path in dataset.images] == ["a.jpg", "b.jpg"]
    truth = dataset.annotations(1)
    assert truth.boxes.tolist() == [[1, 2, 4, 6]]
    assert truth.labels.tolist() == [1]
    assert truth.ignored.tolist() == [[0, 0, 9, 9]]
    (folder / "annotations" / "aitodv2_val.json").write_text("{}")
    with pytest.raises(InputError, match="not a COCO annotation file"):
        open_dataset(f"aitodv2:{folder}")


@pytest.mark.parametrize("spec", ["nowhere", "visdrone:nowhere", "aitodv2:nowhere", "other:thing"])
def test_missing_data_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=r"nowhere|other"):
        open_dataset(spec)


def test_folders_have_images_but_no_annotations(folder: Path) -> None:
    plain = open_dataset(str(folder / "images"))
    assert len(plain.images) == 2
    with pytest.raises(InputError, match="no annotations"):
        plain.annotations(0)
    with pytest.raises(InputError, match="holds no images"):
        open_dataset(str(folder / "annotations"))


def test_the_real_val_split(visdrone: Path) -> None:
    dataset = open_dataset(f"visdrone:{visdrone}")
    truths = [dataset.annotations(i) for i in range(len(dataset.images))]
    assert len(truths) == 548
    assert sum(len(truth.boxes) for truth in truths) == 38759
    assert sum(len(truth.ignored) for truth in truths) == 1378 + 32
    assert np.unique(np.concatenate([truth.labels for truth in truths])).tolist() == list(range(10))


@pytest.mark.parametrize("spec", ["nowhere", "coco:a.json", "visdrone:", "voc:DIR", "coco:a.json:b"])
def test_specs_that_open_nothing_are_refused(spec: str) -> None:
    with pytest.raises(InputError):
        open_dataset(spec)


@pytest.mark.parametrize(
    ("names", "ids"), [(("010", "9"), (10, 9)), (("01", "1"), (1, 2)), (("1", "b"), (1, 2))], ids=str
)
def test_images_are_numbered_by_their_stems_only_where_all_are_numbers(
    tmp_path: Path, names: tuple[str, str], ids: tuple[int, int]
) -> None:
    for kind in ("images", "annotations"):
        (tmp_path / kind).mkdir()
    for name in names:
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / f"{name}.jpg")
        (tmp_path / "annotations" / f"{name}.txt").write_text("")
    assert open_annotated(f"visdrone:{tmp_path}").image_ids == ids


def test_the_common_folder_holds_every_image() -> None:
    assert common_folder([Path("s/a/1.jpg"), Path("s/b/c/1.jpg")]) == Path("s")
    assert common_folder([Path("s/a/1.jpg")]) == Path("s/a")
