"""Videos in and out, frame by frame, with a log to resume from."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.cli.detections import PARTS, Job, Output, is_record, record
from vgtok.errors import InputError, VGTokError
from vgtok.files import stamp, write_text
from vgtok.journal import parsed

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


LOG_SUFFIX = ".frames.jsonl"
"""How the file of a video's finished frames ends."""


class FrameLog:
    """The finished frames of one video as a JSON-lines file, numbered from 0 without a gap.

    Nothing of it is held: `count` is how many frames there are, iterating reads them from the file. Only the frame that
    comes next can be added, so none is ever there twice.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Go on with the file if its header is this one, or else start it anew."""
        self.path = path
        self.header: dict[str, Any] = json.loads(json.dumps(header))
        self.count, size = self._finished()
        try:
            if size:
                os.truncate(path, size)
            else:
                write_text(path, json.dumps(self.header) + "\n")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note that the frame after the last one is finished."""
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps({"frame": self.count, **entry}).encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        self.count += 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return _frames(self.path)

    def _finished(self) -> tuple[int, int]:
        """How many frames of this header the file holds, and the bytes of it that are whole; 0 if it is another's."""
        if _header(self.path) != self.header:
            return 0, 0
        count = 0
        with self.path.open("rb") as file:
            size = len(file.readline())
            for _, length in _numbered(file):
                count, size = count + 1, size + length
        return count, size


def logged_frames(folder: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every frame of every video a folder holds the log of, where it was made with these settings."""
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        header = _header(path)
        if header is not None and header.get("settings") == settings:
            yield from _frames(path)


def _frames(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            file.readline()
            for entry, _ in _numbered(file):
                yield entry
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each frame and the bytes its line takes, up to the first line that is not whole or not the next frame's."""
    for number, line in enumerate(lines):
        entry = parsed(line) if line.endswith(b"\n") else None
        if entry is None or entry.get("frame") != number or not is_record(entry):
            return
        yield entry, len(line)


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
            return parsed(line) if line.endswith(b"\n") else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


class Video:
    """One video file, called `item` in results; `resumed` counts the frames an earlier run finished."""

    def __init__(self, job: Job, path: Path, item: str, name: str) -> None:
        self.job, self.path, self.item = job, path, item
        self.rate = frame_rate(path)
        header = {"input": item, "stamp": stamp(path), "frames_per_second": self.rate, "settings": job.settings}
        self.log = FrameLog(job.out / f"{name}{LOG_SUFFIX}", header)
        self.resumed = self.log.count
        self.targets = job.targets(name, ".mp4")
        if not self.resumed:
            self._outdated()

    def detect(self, advance: Callable[[], None]) -> None:
        """Detect in every frame that is not in the log yet; `advance` is called after each."""
        for frame in read_video(self.path, self.log.count):
            item = f"{self.item}#{frame.number:06d}"
            try:
                result = self.job.detect(frame.pixels)
            except (VGTokError, RuntimeError, MemoryError) as error:
                raise InputError(f"{item}: {error}; run again to go on from there") from None
            self._outdated()
            self.log.add({"seconds": round(frame.seconds, 3), **record(item, result)})
            advance()

    def undrawn(self) -> int:
        """How many pictures `write` will draw."""
        return self.log.count * sum(not target.is_file() for target in self.targets.values())

    def write(self, advance: Callable[[], None]) -> None:
        """Draw the frames of the log into every annotated video that is missing; `advance` is called after each."""
        for kind, target in self.targets.items():
            if self.log.count and not target.is_file():
                write_video(target, self._pictures(kind, advance), self.rate)

    def row(self) -> dict[str, Any]:
        """What came of the video, read from its log: totals, and means over its frames."""
        detections, sums = 0, np.zeros(2 + len(PARTS))
        for entry in self.log:
            detections += len(entry["objects"])
            sums += (entry["tokens"], entry["retained"], *(entry["ms"][part] for part in PARTS))
        tokens, retained, *ms = (sums / max(self.log.count, 1)).tolist()
        return {
            "input": self.item,
            "frames": self.log.count,
            "resumed": self.resumed,
            "detections": detections,
            "tokens": tokens,
            "retained": retained,
            "ms": dict(zip(PARTS, ms, strict=True)),
            "log": str(self.log.path),
            "written": [str(target) for target in self.targets.values() if target.is_file()],
        }

    def _pictures(self, kind: Output, advance: Callable[[], None]) -> Iterator[NDArray[np.uint8]]:
        frames = read_video(self.path)
        for entry in self.log:
            frame = next(frames, None)
            if frame is None:
                raise InputError(f"{self.path}: ended sooner than when it was read first; delete {self.log.path}")
            yield np.asarray(self.job.draw(frame.pixels, entry["objects"], kind), dtype=np.uint8)
            advance()

    def _outdated(self) -> None:
        for target in self.targets.values():
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{target}: cannot be removed ({error.strerror or error})") from None
