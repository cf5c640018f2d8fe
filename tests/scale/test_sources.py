"""Frames by files, folders, lists, parquet files and addresses."""

import io
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from vgtok.errors import InputError
from vgtok.scale.frames import Frame, Piece, cut_shards
from vgtok.scale.sources import find_frames


def picture(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def values(pieces: list[Piece]) -> list[int]:
    """The gray of every frame, read as a worker does."""
    frames = [frame for shard in cut_shards(pieces) for frame in shard.frames()]
    return [int(frame.pixels()[0, 0, 0]) for frame in frames if isinstance(frame, Frame)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    for number, name in enumerate(("b.png", "a.png", "inner/a.png")):
        (tmp_path / name).write_bytes(picture(10 * number))
    (tmp_path / "notes.md").write_text("nothing")
    return tmp_path


@pytest.fixture
def in_memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for number in range(3):
        system.pipe_file(f"/scale/{number}.png", picture(100 + number))
    system.pipe_file("/scale/notes.md", b"nothing")
    yield "memory://scale"
    system.rm("/scale", recursive=True)


def test_a_folder_gives_its_images_sorted(folder: Path) -> None:
    assert values(find_frames(folder)) == [10, 0]
    assert values(find_frames(f"file://{folder}")) == [10, 0]
    deep = find_frames(folder, recursive=True)
    assert values(deep) == [10, 0, 20]
    assert [frame.label for frame in deep if isinstance(frame, Frame)] == ["a", "b", "a-2"]


def test_a_list_names_frames_from_its_folder(folder: Path, in_memory: str) -> None:
    (folder / "frames.txt").write_text(f"inner/a.png\n\n{folder / 'b.png'}\n{in_memory}/2.png\n")
    assert values(find_frames([folder / "frames.txt", folder / "a.png"])) == [20, 0, 102, 10]


def test_an_address_gives_a_folder_a_glob_or_a_file(in_memory: str) -> None:
    assert values(find_frames(in_memory)) == [100, 101, 102]
    assert values(find_frames(f"{in_memory}/[12].png")) == [101, 102]
    assert values(find_frames([f"{in_memory}/1.png"])) == [101]


@pytest.mark.parametrize("kind", ["image", "bytes", "struct", "path"])
def test_a_parquet_file_holds_images_or_their_places(folder: Path, kind: str) -> None:
    pictures = [picture(value) for value in (1, 2, 3)]
    tables = {
        "image": {"image": pictures, "path": ["x", "y", "z"]},
        "bytes": {"bytes": pictures},
        "struct": {"image": [{"bytes": data, "path": f"{n}.png"} for n, data in enumerate(pictures)]},
        "path": {"path": ["a.png", str(folder / "b.png"), "inner/a.png"]},
    }
    place = folder / "frames.parquet"
    parquet.write_table(pyarrow.table(tables[kind]), place)
    assert values(find_frames(place)) == ([10, 0, 20] if kind == "path" else [1, 2, 3])


def test_what_cannot_be_read_is_named(folder: Path, in_memory: str) -> None:
    parquet.write_table(pyarrow.table({"number": [1]}), folder / "numbers.parquet")
    (folder / "broken.parquet").write_bytes(b"PAR1")
    fsspec.filesystem("memory").pipe_file("/scale/one.parquet", b"")
    for source, text in (
        (folder / "none.png", "none.png: no such file"),
        (f"{in_memory}/none.png", "memory://scale/none.png: no such file"),
        (folder / "numbers.parquet", "has none of the columns image, bytes, path, name, but number"),
        (folder / "broken.parquet", "broken.parquet: not a parquet file"),
        (f"{in_memory}/one.parquet", "is in the memory of this process"),
        ("nowhere://frames", "nowhere://frames: is no address that can be read here"),
        ([], "frames: there are none"),
    ):
        with pytest.raises(InputError, match=text):
            find_frames(source)
