"""A subset is the same data set over fewer images."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.folders import write_visdrone
from vgtok.data.dataset import open_annotated
from vgtok.data.subset import evenly_spaced, kept_apart, of_classes, sequence_of


def test_images_are_spread_and_keep_their_ids(tmp_path: Path) -> None:
    lines = {f"{number}": f"{number},10,20,20,1,4,0,0\n" for number in range(7)}
    whole = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'v', lines)}")
    part = evenly_spaced(whole, 3)
    assert [path.stem for path in part.images] == ["0", "2", "4"]
    assert part.image_ids == tuple(whole.image_ids[at] for at in (0, 2, 4))
    assert (part.name, part.names, part.category_ids) == (whole.name, whole.names, whole.category_ids)
    assert part.problems == whole.problems
    for index, at in enumerate((0, 2, 4)):
        assert part.annotations(index).boxes[0, 0] == at
        assert part.parse(index) == whole.parse(at)
        assert part.size(index) == whole.size(at)
    assert evenly_spaced(whole, 7) is whole


def test_classes_are_chosen_and_renumbered(tmp_path: Path) -> None:
    # Of VisDrone's categories 1 is pedestrian, 4 car, 9 bus and 0 an ignored region.
    lines = {"a": "".join(f"{number},10,20,20,1,{category},0,0\n" for number, category in enumerate((9, 4, 1, 0, 4)))}
    whole = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'v', lines)}")
    part = of_classes(whole, ("bus", "car"))
    assert (part.name, part.names, part.category_ids) == ("visdrone", ("car", "bus"), (4, 9))
    assert (part.images, part.image_ids, part.problems) == (whole.images, whole.image_ids, whole.problems)
    found = part.annotations(0)
    assert found.labels.tolist() == [1, 0, 0]
    assert found.boxes[:, 0].tolist() == [0, 1, 4]
    assert found.ignored.tolist() == whole.annotations(0).ignored.tolist() != []
    rows = part.parse(0).rows
    assert [row.box[0] for row in rows] == [0, 1, 3, 4]
    assert [row.label for row in rows] == [1, 0, whole.parse(0).rows[3].label, 0]
    assert part.size(0) == whole.size(0)
    assert of_classes(whole, whole.names) is whole


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("0000002_00005_d_0000014.jpg", "0000002_00448_d_0000015.jpg", True),
        ("0000002_00005_d_0000014.jpg", "0000003_00231_d_0000016.jpg", False),
        ("flight-0012.png", "flight-0013.png", True),
        ("17.png", "18.png", True),
        ("a/0001.png", "b/0001.png", False),
        ("harbour.png", "airport.png", False),
    ],
)
def test_frames_of_one_flight_belong_together(one: str, other: str, together: bool) -> None:
    assert (sequence_of(Path(one)) == sequence_of(Path(other))) is together


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(0, 60))
def test_whole_sequences_are_kept_apart(lengths: list[int], count: int) -> None:
    images = [Path(f"s{flight}_{number}.jpg") for flight, length in enumerate(lengths) for number in range(length)]
    apart = kept_apart(images, count)
    assert len(apart) >= min(count, len(images))
    chosen = {sequence_of(images[index]) for index in apart}
    rest = {sequence_of(image) for index, image in enumerate(images) if index not in set(apart)}
    assert not chosen & rest
    assert kept_apart(images, count) == apart
    short = [length for length in lengths if length <= count // 4]
    if sum(short) >= count:
        assert len(apart) < count + max([*short, 1])


@given(st.lists(st.sets(st.integers(0, 5)), min_size=2, max_size=30), st.integers(1, 10))
def test_classes_of_two_sequences_are_kept_apart_first(classes: list[set[int]], count: int) -> None:
    images = [Path(f"s{flight}_0.jpg") for flight in range(len(classes))]
    apart = kept_apart(images, max(count, 6), [sorted(shown) for shown in classes])
    shared = {label for label in range(6) if sum(label in shown for shown in classes) > 1}
    assert shared <= {label for index in apart for label in classes[index]}
