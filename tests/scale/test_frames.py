"""Frames cut into shards: every frame once and in order, whatever they come from."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgtok.scale.frames import LARGEST_SHARD, Frame, Piece, Rows, Shard, count_frames, cut_shards, shard_size

PIECES = st.lists(
    st.one_of(
        st.integers(0, 99).map(lambda number: Frame(f"{number}.jpg", f"/{number}.jpg", str(number))),
        st.integers(1, 40).map(lambda count: Rows(f"/{count}.parquet", 0, count)),
    ),
    min_size=1,
    max_size=12,
)


def names(pieces: list[Piece]) -> list[str]:
    return Shard(0, 0, count_frames(pieces), tuple(pieces)).items()


@given(PIECES, st.none() | st.integers(1, 50))
def test_shards_hold_every_frame_once_in_order(pieces: list[Piece], size: int | None) -> None:
    shards = cut_shards(pieces, size)
    assert [name for shard in shards for name in shard.items()] == names(pieces)
    most = size or shard_size(count_frames(pieces))
    assert [shard.count for shard in shards[:-1]] == [most] * (len(shards) - 1)
    assert 1 <= shards[-1].count <= most
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [shard.first for shard in shards] == [most * shard.number for shard in shards]


@given(st.integers(1, 10**7))
def test_shards_are_many_but_not_small(frames: int) -> None:
    size = shard_size(frames)
    assert 1 <= size <= LARGEST_SHARD
    assert -(-frames // size) <= max(64, frames / LARGEST_SHARD + 1)


def test_a_key_changes_with_settings_frames_and_marks() -> None:
    frame = Frame("a.jpg", "/a.jpg", "a", "1")
    shard = cut_shards([frame])[0]
    others = [Frame("a.jpg", "/a.jpg", "a", "2"), Frame("a.jpg", "/b.jpg", "a", "1"), Rows("/a.jpg", 0, 1, "1")]
    keys = {shard.key("x"), shard.key("y"), *(cut_shards([other])[0].key("x") for other in others)}
    assert len(keys) == 5
    assert shard.key("x") == cut_shards([frame])[0].key("x")


@pytest.mark.parametrize("group", [1, 4, 100])
def test_rows_are_read_from_any_row_groups(tmp_path: Path, group: int) -> None:
    place = tmp_path / "frames.parquet"
    table = pyarrow.table({"image": [bytes([number]) for number in range(37)], "index": np.arange(37)})
    parquet.write_table(table, place, row_group_size=group)
    read = [frame for shard in cut_shards([Rows(str(place), 0, 37)], 5) for frame in shard.frames()]
    assert [frame.content for frame in read if isinstance(frame, Frame)] == [bytes([number]) for number in range(37)]
    assert len({frame.label for frame in read if isinstance(frame, Frame)}) == 37


def test_rows_of_a_file_that_shrank_are_errors(tmp_path: Path) -> None:
    place = tmp_path / "frames.parquet"
    parquet.write_table(pyarrow.table({"image": [b"x"] * 3}), place)
    found = list(cut_shards([Rows(str(place), 0, 5)])[0].frames())
    assert isinstance(found[0], Frame)
    damaged = list(Shard(0, 0, 2, (Rows(str(tmp_path / "none.parquet"), 0, 2),)).frames())
    assert len(damaged) == 2
    assert all(isinstance(error, str) and "none.parquet" in error for error in damaged)
