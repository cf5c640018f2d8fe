"""Read, detect in and write videos frame by frame, with a log to resume from."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.cli.detections import PARTS, Job, Output, is_record, object_corners
from vgtok.cli.pipeline import Feed, ahead, in_groups
from vgtok.detect.result import record
from vgtok.errors import InputError, VGTokError
from vgtok.files import stamp
from vgtok.journal import Journal, read_entries, read_header
from vgtok.slicing.frames import ArrayFrame

if TYPE_CHECKING:
    from vgtok.detect.result import Prepared, Result
    from vgtok.detect.tracking import Tracker

    Drawn = tuple[Prepared, Mapping[str, Any]]

VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"})

_CODEC = "mp4v"
"""The only mp4 encoder that every build of OpenCV has."""
_DEFAULT_RATE = 25.0


@dataclass(frozen=True)
class Frame:
    """One video frame: its `number` from 0, its time in `seconds`, and (H, W, 3) RGB `pixels`."""

    number: int
    seconds: float
    pixels: NDArray[np.uint8]


def is_video(path: Path) -> bool:
    """Whether a file is a video by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def count_frames(path: Path) -> int:
    """Return the number of frames in a video's header; 0 if it cannot be opened."""
    with _opened(path) as capture:
        return _header_count(capture)


def frame_rate(path: Path) -> float:
    """Return the frames per second of a video; 25 if its header has no sensible value."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with _opened(path) as capture:
        if not capture.grab():
            raise InputError(f"{path}: not a video that can be read; it is damaged or of an unknown kind")
        rate = float(capture.get(cv2.CAP_PROP_FPS))
        return rate if 0 < rate <= 1000 else _DEFAULT_RATE


def read_video(path: Path, start: int = 0) -> Iterator[Frame]:
    """Yield the frames of a video from number `start` on; raise at the end if many are missing."""
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
        # Headers often count a few frames too many.
        if number < 0.9 * _header_count(capture):
            raise InputError(
                f"{path}: ends after {number} of {_header_count(capture)} frames; it is damaged or cut short"
            )


def write_video(path: Path, pictures: Iterable[NDArray[np.uint8]], rate: float) -> None:
    """Write (H, W, 3) RGB pictures of one size as an mp4, whole or not at all; odd sides lose one pixel."""
    # Always the same name, so that the next run overwrites what a kill leaves behind.
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        count = _write(partial, pictures, rate)
        # The encoder silently drops frames it cannot store, e.g. on a full disk.
        if count_frames(partial) != count:
            raise InputError(f"{path}: could not be written whole; free some disk space")
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


def check_camera(number: int) -> None:
    """Raise InputError unless OpenCV can read a frame of the camera."""
    with _opened(number) as capture:
        if not capture.grab():
            raise InputError(f"{number}: no camera of that number can be opened here; give a video file instead")


def record_camera(number: int, seconds: float, folder: Path) -> Path:
    """Record a camera to `camera-NUMBER.mp4` in a folder for some seconds, or until Ctrl-C; return the file."""
    path = folder / f"camera-{number}.mp4"
    with _opened(number) as capture:
        rate = float(capture.get(cv2.CAP_PROP_FPS))
        write_video(path, _recorded(capture, seconds), rate if 0 < rate <= 1000 else _DEFAULT_RATE)
    return path


def _recorded(capture: cv2.VideoCapture, seconds: float) -> Iterator[NDArray[np.uint8]]:
    """Yield (H, W, 3) RGB frames as they come."""
    end = time.monotonic() + seconds
    # Ctrl-C ends the recording; detection then runs on what there is.
    with suppress(KeyboardInterrupt):
        while time.monotonic() < end:
            decoded, picture = capture.read()
            if not decoded:
                return
            yield np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)


@contextmanager
def _opened(source: Path | int) -> Iterator[cv2.VideoCapture]:
    """Open a file, or a camera by its number."""
    # Silence the decoder: its problems are reported here in one line.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    capture = _camera(source) if isinstance(source, int) else cv2.VideoCapture(str(source))
    try:
        yield capture
    finally:
        capture.release()


def _camera(number: int) -> cv2.VideoCapture:
    # Silent too: every interface of the system that lacks the camera would complain.
    before = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        return cv2.VideoCapture(number)
    finally:
        cv2.utils.logging.setLogLevel(before)


def _header_count(capture: cv2.VideoCapture) -> int:
    count = float(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    # A damaged header may hold anything, even NaN.
    return int(count) if 0 < count < 1e9 else 0


LOG_SUFFIX = ".frames.jsonl"
"""Ending of the log of a video's finished frames."""
_NUMBER = "frame"
"""Field of a log entry that holds the number of the frame."""


def logged_frames(folder: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the frames of every video log in a folder that was made with these settings."""
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        header = read_header(path)
        if header is not None and header.get("settings") == settings:
            yield from read_entries(path, is_record, number_field=_NUMBER)


def _resumed_tracks(job: Job, log: Journal) -> "Tracker":
    """Return a tracker that has seen the frames of the log."""
    from vgtok.detect.tracking import Tracker

    tracker = Tracker(job.settings["score_threshold"])
    for entry in log.entries.values():
        rows = entry["objects"]
        labels, identities = (np.array([row.get(key, 0) for row in rows], dtype=np.int64) for key in ("label", "track"))
        tracker.replay(object_corners(rows), np.array([row["score"] for row in rows]), labels, identities)
    return tracker


def _close(drawings: "Sequence[Feed[Drawn]]") -> None:
    """End all drawings; raise the error of the first that failed once every thread has ended."""
    with ExitStack() as stack:
        for drawing in reversed(drawings):
            stack.callback(drawing.close)


class Video:
    """One video file, called `item` in results; `resumed` is the number of frames an earlier run finished."""

    def __init__(self, job: Job, path: Path, item: str, name: str) -> None:
        self.job, self.path, self.item = job, path, item
        self.rate = frame_rate(path)
        header = {"input": item, "stamp": stamp(path), "frames_per_second": self.rate, "settings": job.settings}
        path = job.out / f"{name}{LOG_SUFFIX}"
        self.log = Journal(path, header, is_record, number_field=_NUMBER, restart=True)
        self.resumed = len(self.log.entries)
        self.stream = job.stream(self.log.entries.values())
        self.targets = job.targets(name, ".mp4")
        self.tracks = _resumed_tracks(job, self.log) if job.settings.get("track") else None
        if not self.resumed:
            self._remove_outdated()

    def detect(self, advance: Callable[[], None]) -> None:
        """Detect in every frame that is not in the log; call `advance` after each.

        The next frames are read and tokenized while the network runs. Unless an earlier run found some of them, frames
        are drawn as they are found; `write` draws what is then missing.
        """
        drawings = [] if self.resumed else [self._drawing(kind, target) for kind, target in self.targets.items()]
        try:
            for group in in_groups(ahead(self._prepared()), self.job.batch):
                self._detect_group(group, drawings, advance)
        except VGTokError:
            # The frames before the error make a whole video.
            _close(drawings)
            raise
        except BaseException as error:
            for drawing in drawings:
                drawing.close(error)
            raise
        _close(drawings)

    def _prepared(self) -> "Iterator[tuple[Frame, Prepared]]":
        """Yield the frames that are not in the log, ready for the network."""
        for frame in read_video(self.path, len(self.log.entries)):
            try:
                yield frame, self.job.prepare(frame.pixels, self.stream)
            except (RuntimeError, MemoryError) as error:
                raise InputError(f"{self.item}#{frame.number:06d}: {error}; run again to resume from there") from None

    def _detect_group(
        self, group: "Sequence[tuple[Frame, Prepared]]", drawings: "Sequence[Feed[Drawn]]", advance: Callable[[], None]
    ) -> None:
        """Detect in the next few frames, log them and hand them to the drawings."""
        results = self.job.detect_all([image for _, image in group], self._least_score())
        for (frame, image), result in zip(group, results, strict=True):
            item = f"{self.item}#{frame.number:06d}"
            if isinstance(result, Exception):
                raise InputError(f"{item}: {result}; run again to resume from there")
            entry = self._record(result, item)
            if self.resumed:
                self._remove_outdated()
            self.log.add(item, {"seconds": round(frame.seconds, 3), **entry})
            for drawing in drawings:
                drawing.put((image, entry))
            advance()

    def _drawing(self, kind: Output, target: Path) -> "Feed[Drawn]":
        """Return a feed that draws frames with their records to an annotated video."""

        def pictures(found: "Iterator[Drawn]") -> Iterator[NDArray[np.uint8]]:
            for image, entry in found:
                yield np.asarray(self.job.draw(ArrayFrame(image.pixels), entry, kind, image.tokens), dtype=np.uint8)

        def write(found: "Iterator[Drawn]") -> None:
            first = next(found, None)
            if first is not None:
                write_video(target, pictures(chain([first], found)), self.rate)

        return Feed(write)

    def _least_score(self) -> float | None:
        """Return the score above which frames are searched; tracks are also followed by weak detections."""
        if self.tracks is None:
            return None
        from vgtok.detect.tracking import WEAK_SCORE

        return min(float(self.job.settings["score_threshold"]), WEAK_SCORE)

    def _record(self, result: "Result", item: str) -> dict[str, Any]:
        """Return the record of the next frame, with identities if the run tracks."""
        entry = record(item, result)
        if self.tracks is None:
            return entry
        from vgtok.detect.tracking import UNTRACKED

        least = self.job.settings["score_threshold"]
        # The rounded values of the record, so that replaying the log gives the same tracks.
        objects = entry["objects"]
        boxes, labels = object_corners(objects), np.array([row["label"] for row in objects], dtype=np.int64)
        identities = self.tracks.update(boxes, np.array([row["score"] for row in objects]), labels).tolist()
        rows = [row | {"track": identity} for row, identity in zip(objects, identities, strict=True)]
        return {**entry, "objects": [row for row in rows if row["score"] >= least or row["track"] != UNTRACKED]}

    def undrawn(self) -> int:
        """Return the number of pictures `write` will draw."""
        return len(self.log.entries) * sum(not target.is_file() for target in self.targets.values())

    def write(self, advance: Callable[[], None]) -> None:
        """Write every annotated video that is missing, from the log; call `advance` after each frame."""
        for kind, target in self.targets.items():
            if self.log.entries and not target.is_file():
                # Frames are read and drawn in a thread, and encoded in this one.
                write_video(target, ahead(self._pictures(kind, advance)), self.rate)

    def row(self) -> dict[str, Any]:
        """Return the row of the video for the report: totals, and means over its frames."""
        detections, sums = 0, np.zeros(2 + len(PARTS))
        for entry in self.log.entries.values():
            detections += len(entry["objects"])
            sums += (entry["tokens"], entry["retained"], *(entry["ms"][part] for part in PARTS))
        tokens, retained, *ms = (sums / max(len(self.log.entries), 1)).tolist()
        return {
            "input": self.item,
            "frames": len(self.log.entries),
            "resumed": self.resumed,
            "detections": detections,
            "tokens": tokens,
            "retained": retained,
            "ms": dict(zip(PARTS, ms, strict=True)),
            **({"tracks": self.track_counts()} if self.tracks else {}),
            "log": str(self.log.path),
            "written": [str(target) for target in self.targets.values() if target.is_file()],
        }

    def track_counts(self) -> dict[str, int]:
        """Return the number of tracks of each class, most numerous first."""
        from vgtok.detect.tracking import count_tracks

        frames = (entry["objects"] for entry in self.log.entries.values())
        return count_tracks([(row["track"], row["name"]) for row in objects if row.get("track")] for objects in frames)

    def _pictures(self, kind: Output, advance: Callable[[], None]) -> Iterator[NDArray[np.uint8]]:
        frames = read_video(self.path)
        for entry in self.log.entries.values():
            frame = next(frames, None)
            if frame is None:
                raise InputError(f"{self.path}: has fewer frames than when it was first read; delete {self.log.path}")
            yield np.asarray(self.job.draw(ArrayFrame(frame.pixels), entry, kind), dtype=np.uint8)
            advance()

    def _remove_outdated(self) -> None:
        for target in self.targets.values():
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{target}: cannot be removed ({error.strerror or error})") from None
