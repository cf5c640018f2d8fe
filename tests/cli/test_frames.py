"""Pictures and videos as one stream: what is finished is skipped, what is cut short is told."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from vgtok.cli.frames import count_frames, frames_of
from vgtok.errors import InputError


def write_video(path: Path, count: int) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    # Noise makes frames that take room in the file.
    noise = np.random.default_rng(0).integers(0, 40, (48, 64, 3), dtype=np.uint8)
    for number in range(count):
        writer.write(noise + np.uint8(10 * number))
    writer.release()


def test_a_picture_is_one_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (30, 20), (1, 2, 3)).save(path)
    (frame,) = frames_of(path, "a.png", lambda _: False)
    assert (frame.item, frame.number, frame.pixels.shape) == ("a.png", None, (20, 30, 3))
    assert list(frames_of(path, "a.png", lambda _: True)) == []
    assert count_frames(path) == 1


def test_a_video_skips_what_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_video(path, 6)
    assert count_frames(path) == 6
    frames = list(frames_of(path, "a.avi", lambda item: item.endswith(("1", "2", "3"))))
    assert [frame.number for frame in frames] == [0, 4, 5]
    assert [round((frame.pixels.mean() - 19.5) / 10) for frame in frames] == [0, 4, 5]


def test_a_video_cut_short_is_told_after_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_video(path, 20)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    frames = frames_of(path, "a.avi", lambda _: False)
    assert next(frames).number == 0
    with pytest.raises(InputError, match=r"a.avi: ends after \d+ of 20 frames"):
        list(frames)
