"""A video as a stream of frames, in and out: one frame is in memory at a time, whatever the length.

Reading starts at any frame and counts every one before it, since seeking in compressed video is not exact. Writing
gives a whole video or none.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"})

_CODEC = "mp4v"
"""The one encoder for mp4 files that every build of OpenCV brings."""
_USUAL_RATE = 25.0


@dataclass(frozen=True)
class Frame:
    """One frame: its `number` from 0, when it is shown in `seconds`, and (H, W, 3) RGB `pixels`."""

    number: int
    seconds: float
    pixels: NDArray[np.uint8]


def is_video(path: Path) -> bool:
    """Whether a file is a video by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def count_frames(path: Path) -> int:
    """Frames a video announces; 0 if it cannot be opened."""
    with _opened(path) as capture:
        return _announced(capture)


def frame_rate(path: Path) -> float:
    """Frames per second of a video that can be read; a usual rate where it states none that makes sense."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with _opened(path) as capture:
        if not capture.grab():
            raise InputError(f"{path}: not a video that can be read; it is damaged or of an unknown kind")
        rate = float(capture.get(cv2.CAP_PROP_FPS))
        return rate if 0 < rate <= 1000 else _USUAL_RATE


def read_video(path: Path, start: int = 0) -> Iterator[Frame]:
    """The frames of a video from number `start` on; one that ends long before it should says so after its frames."""
    with _opened(path) as capture:
        number = 0
        while capture.grab():
            if number >= start:
                seconds = float(capture.get(cv2.CAP_PROP_POS_MSEC)) / 1000
                try:
                    decoded, picture = capture.retrieve()
                except cv2.error:
                    decoded = False
                if not decoded:
                    raise InputError(f"{path}: frame {number} cannot be decoded")
                yield Frame(number, seconds, np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8))
            number += 1
        # Containers often count a few frames more than they hold.
        if number < 0.9 * _announced(capture):
            raise InputError(f"{path}: ends after {number} of {_announced(capture)} frames; it is damaged or cut short")


def write_video(path: Path, pictures: Iterable[NDArray[np.uint8]], rate: float) -> None:
    """Write (H, W, 3) RGB pictures of one size as an mp4, whole or not at all; odd sides lose their last pixel."""
    # One name, not a new one each time: what a kill leaves behind is overwritten by the next run.
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        count = _write(partial, pictures, rate)
        # The encoder drops what it cannot store without a word: a full disk, a frame of another size.
        if count_frames(partial) != count:
            raise InputError(f"{path}: could not be written whole; make room on the disk")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        partial.unlink(missing_ok=True)


def _write(path: Path, pictures: Iterable[NDArray[np.uint8]], rate: float) -> int:
    writer, count = cv2.VideoWriter(), 0
    try:
        for count, picture in enumerate(pictures, start=1):
            if count == 1:
                size = (picture.shape[1], picture.shape[0])
                if not writer.open(str(path), cv2.VideoWriter.fourcc(*_CODEC), rate, size):
                    raise InputError(f"{path.parent}: no video of {size[0]} x {size[1]} px can be written there")
            writer.write(cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()
    return count


@contextmanager
def _opened(path: Path) -> Iterator[cv2.VideoCapture]:
    # The decoder would narrate on standard error what is reported here in one line.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    capture = cv2.VideoCapture(str(path))
    try:
        yield capture
    finally:
        capture.release()


def _announced(capture: cv2.VideoCapture) -> int:
    count = float(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    # A damaged header may announce anything, NaN included.
    return int(count) if 0 < count < 1e9 else 0
