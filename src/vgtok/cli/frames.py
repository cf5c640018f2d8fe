"""Pictures and videos as one stream of frames, each with a name that finds it again.

A video is read frame by frame and never held; frames that are already finished are skipped without being decoded.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError
from vgtok.tokenize.images import read_image

VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"})


@dataclass(frozen=True)
class Frame:
    """One picture: `item` names it, `number` is its place in a video (None for a picture file)."""

    item: str
    number: int | None
    pixels: NDArray[np.uint8]


def is_video(path: Path) -> bool:
    """Whether a file is a video by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def count_frames(path: Path) -> int:
    """Frames a file announces; 1 for a picture, 0 for a video that cannot be opened."""
    if not is_video(path):
        return 1
    with _opened(path) as capture:
        return _announced(capture)


def frames_of(path: Path, item: str, finished: Callable[[str], bool]) -> Iterator[Frame]:
    """The frames of a file called `item` that are not finished; those of a video are called `item#000000` and on.

    A video that ends long before it should is reported after the frames it has.
    """
    if not is_video(path):
        if not finished(item):
            yield Frame(item, None, read_image(path))
        return
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with _opened(path) as capture:
        number = 0
        while capture.grab():
            name = f"{item}#{number:06d}"
            if not finished(name):
                decoded, picture = capture.retrieve()
                if not decoded:
                    raise InputError(f"{path}: frame {number} cannot be decoded")
                yield Frame(name, number, np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8))
            number += 1
        if number == 0:
            raise InputError(f"{path}: not a video that can be read")
        # Containers often count a few frames more than they hold.
        if number < 0.9 * _announced(capture):
            raise InputError(f"{path}: ends after {number} of {_announced(capture)} frames; it is damaged or cut short")


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
    return max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
