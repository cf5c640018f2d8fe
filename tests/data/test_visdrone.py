"""VisDrone folders: objects, regions and others, and every line that cannot be used."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.folders import write_visdrone
from vgtok.data.dataset import Role, open_annotated, open_dataset, summarize
from vgtok.errors import InputError

OBJECT = "10,20,30,40,1,4,0,1\n"


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


@given(line=st.text(alphabet="0123456789,.-+eEnaif ", max_size=40))
def test_any_visdrone_line_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    folder = write_visdrone(tmp_path_factory.mktemp("junk"), {"a": line}, (20, 20))
    with contextlib.suppress(InputError):
        reading = open_annotated(f"visdrone:{folder}").parse(0)
        assert bool(line.strip()) == bool(reading.rows or reading.problems)


def test_a_plain_folder_has_images_but_cannot_be_evaluated(tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "visdrone", {"a": OBJECT}) / "images"
    assert [path.name for path in open_dataset(str(folder)).images] == ["a.jpg"]
    with pytest.raises(InputError, match="plain folder"):
        open_annotated(str(folder))


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_no_image_has_are_no_place_in_one(tmp_path: Path, digits: int) -> None:
    text = f"{'9' * digits},2,3,4.5,1,4,0,0\n10,20,1.5,{'9' * digits},1,4,0,0\n{OBJECT}"
    reading = open_annotated(f"visdrone:{write_visdrone(tmp_path, {'a': text})}").parse(0)
    assert len(reading.rows) == 1
    assert len(reading.problems) == 2
