"""YOLO folders: fractions become pixels, bad lines are named, other YAML is refused."""

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vgtok.data.dataset import open_annotated, summarize
from vgtok.errors import InputError


def yolo(tmp_path: Path, labels: str, names: str = "names: [car, bus]") -> str:
    for folder in ("images", "labels"):
        (tmp_path / "set" / folder / "val").mkdir(parents=True)
    Image.new("RGB", (200, 100)).save(tmp_path / "set" / "images" / "val" / "12.png")
    (tmp_path / "set" / "labels" / "val" / "12.txt").write_text(labels)
    (tmp_path / "data.yaml").write_text(f"path: set\nval: images/val\n{names}\n")
    return f"yolo:{tmp_path / 'data.yaml'}"


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


def test_a_split_that_is_missing_is_told_with_those_there_are(tmp_path: Path) -> None:
    spec = yolo(tmp_path, "")
    (tmp_path / "data.yaml").write_text("path: set\ntrain: images/val\nnames: [a]\n")
    with pytest.raises(InputError, match=r"names no 'val' split, but train; use yolo:.*data\.yaml:train"):
        open_annotated(spec)
    assert len(open_annotated(f"{spec}:train").images) == 1


@pytest.mark.parametrize("text", ["names: [a", "[1, 2]", "val: images/val", "names: []\nval: images/val", "names: [a]"])
def test_yolo_refuses_other_yaml(tmp_path: Path, text: str) -> None:
    spec = yolo(tmp_path, "")
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(InputError, match=r"data\.yaml"):
        open_annotated(spec)


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
