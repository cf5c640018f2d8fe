"""What is kept apart has no neighbor left among the rest."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.data.subset import kept_apart, sequence_of


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
