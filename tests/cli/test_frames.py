"""Videos as streams: reading starts anywhere, what is cut short is told, and writing gives a whole video or none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from vgtok.cli.video import count_frames, frame_rate, read_video, write_video
from vgtok.errors import InputError

Picture = np.ndarray[Any, np.dtype[np.uint8]]


def pictures(count: int, height: int = 48, width: int = 64) -> Iterator[Picture]:
    """Frames ten grey levels apart; noise makes them take room in the file."""
    noise = np.random.default_rng(0).integers(0, 40, (height, width, 3), dtype=np.uint8)
    return (noise + np.uint8(10 * number) for number in range(count))


def shown(path: Path, start: int = 0) -> list[tuple[int, int]]:
    """Number of every frame, as it is counted and as its pixels tell."""
    return [(frame.number, round((frame.pixels.mean() - 19.5) / 10)) for frame in read_video(path, start)]


def write_avi(path: Path, count: int) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for picture in pictures(count):
        writer.write(picture)
    writer.release()


def test_reading_starts_at_any_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_avi(path, 6)
    assert (count_frames(path), frame_rate(path)) == (6, 10.0)
    assert shown(path) == [(number, number) for number in range(6)]
    assert shown(path, 4) == [(4, 4), (5, 5)]
    assert shown(path, 6) == []
    assert [frame.seconds for frame in read_video(path)] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_video_cut_short_is_told_after_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_avi(path, 20)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    frames = read_video(path)
    assert next(frames).number == 0
    with pytest.raises(InputError, match=r"a.avi: ends after \d+ of 20 frames"):
        list(frames)


@pytest.mark.parametrize("content", [b"", b"not a video"])
def test_what_is_no_video_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mp4"
    with pytest.raises(InputError, match="no such file"):
        frame_rate(path)
    path.write_bytes(content)
    assert count_frames(path) == 0
    with pytest.raises(InputError, match=r"a.mp4: not a video that can be read"):
        frame_rate(path)


def test_a_video_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, pictures(12, 49, 65), 29.97)
    assert shown(path) == [(number, number) for number in range(12)]
    assert frame_rate(path) == pytest.approx(29.97, abs=1e-3)
    assert next(read_video(path)).pixels.shape == (48, 64, 3)
    assert list(tmp_path.iterdir()) == [path]


def test_a_video_that_cannot_be_whole_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"

    def stopped() -> Iterator[Picture]:
        yield from pictures(3)
        raise KeyboardInterrupt

    def growing() -> Iterator[Picture]:
        yield from pictures(3)
        yield from pictures(3, 96, 128)

    with pytest.raises(KeyboardInterrupt):
        write_video(path, stopped(), 10)
    with pytest.raises(InputError, match="could not be written whole"):
        write_video(path, growing(), 10)
    with pytest.raises(InputError, match="no video of 64 x 48 px can be written there"):
        write_video(tmp_path / "nowhere" / "a.mp4", pictures(1), 10)
    assert list(tmp_path.iterdir()) == []
