"""A video through a detector: a log with a line per frame, then the annotated video drawn from that log.

Encoders cannot go on with a file, so none is written while detecting: a kill costs at most the frame at hand, and
every annotated video is a function of the clip and its finished log. One that is there shows all frames of the log,
each once; it is removed before the log grows.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.cli.detections import PARTS, Job, Output, record
from vgtok.cli.frames import frame_rate, read_video, write_video
from vgtok.cli.journal import LOG_SUFFIX, FrameLog
from vgtok.errors import InputError, VGTokError
from vgtok.files import stamp


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
