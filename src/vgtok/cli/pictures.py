"""The image files of `vgtok detect`: read ahead of the network, drawn, written and logged behind it."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vgtok.cli.detections import Job, is_record
from vgtok.cli.frames import WindowLog
from vgtok.cli.pipeline import ahead, behind, in_groups
from vgtok.detect.result import Prepared, Result, record
from vgtok.errors import InputError, VGTokError
from vgtok.files import is_there, stamp
from vgtok.journal import Journal
from vgtok.slicing.frames import ArrayFrame, Frame
from vgtok.slicing.geo import geo_fields


class File(NamedTuple):
    """An image file, called `item` in results, and the start of the names of its pictures."""

    path: Path
    item: str
    name: str


class Pictures:
    """The image files of one command in a folder whose `journal` holds the finished ones, also of earlier commands.

    `items` are those of this command; an earlier one finished `resumed` of them. Finished images that were deleted
    since from one of the input `folders` are dropped.
    """

    def __init__(self, job: Job, folders: AbstractSet[Path]) -> None:
        self.job = job
        self.journal = Journal(job.out / "journal.jsonl", job.settings, partial(_is_current, folders=folders))
        self.stream = job.stream(self.journal.entries.values())
        self.resumed = 0
        self.items: list[str] = []
        self.order: dict[str, int] = {}

    def detect(self, files: Sequence[File], advance: Callable[[], None], fail: Callable[[str, str], None]) -> None:
        """Detect in files, write their pictures and log each, unless an earlier run did; call `advance` after each.

        The next photos are read and the pictures of the last ones drawn while the network runs. An entry is logged when
        its pictures are written, so a kill costs no more than the files in flight. Rasters, and frames that are read by
        windows, are read while they are detected in.
        """
        self.order = {file.item: place for place, file in enumerate(files)}
        with behind() as writer:
            for group in in_groups(ahead(map(self._read, files)), self.job.batch):
                ready = [(file, seen, image) for file, seen, image in group if isinstance(image, Prepared)]
                results = self.job.detect_all([image for _, _, image in ready])
                found = {file.item: result for (file, _, _), result in zip(ready, results, strict=True)}
                for file, seen, image in group:
                    result = found.get(file.item, image)
                    if isinstance(result, Exception):
                        named = isinstance(result, InputError) and file.item not in found
                        fail(file.item, str(result) if named else f"{file.item}: {result}")
                    elif result is None:
                        self.items.append(file.item)
                        self.resumed += 1
                        advance()
                    elif isinstance(result, Result):
                        task = partial(self._write, file, seen, result, ArrayFrame(result.image), advance)
                        writer.add(task, partial(_report, fail, file.item))
                    else:
                        try:
                            self._detect_in_parts(file, seen, advance)
                        except VGTokError as error:
                            fail(file.item, str(error))

    def _read(self, file: File) -> "tuple[File, list[int], Prepared | Exception | Literal['in parts'] | None]":
        """Return a file with its stamp and its prepared image, or why there is none; None if it is finished."""
        seen = stamp(file.path)
        if self._finished(file.path, file.item):
            return file, seen, None
        try:
            with self.job.reading.opened(file.path) as frame:
                if self.job.windows(frame) is not None or not isinstance(frame, ArrayFrame):
                    return file, seen, "in parts"
                return file, seen, self.job.prepare(frame.pixels, self.stream)
        except VGTokError as error:
            return file, seen, error
        except (RuntimeError, MemoryError) as error:
            return file, seen, InputError(f"{file.item}: {error}")

    def _detect_in_parts(self, file: File, seen: list[int], advance: Callable[[], None]) -> None:
        """Detect in a frame that is not read as a whole, with a log of its windows."""
        path, item = file.path, file.item
        with self.job.reading.opened(path) as frame:
            # A large frame is looked at coarsely for its share.
            budget = None if self.stream is None else self.stream.share(frame.picture())
            log = None
            if self.job.windows(frame) is not None:
                settings = {**self.job.settings, "source": str(path.absolute()), "stamp": seen, "share": budget}
                log = WindowLog(self.job.out / f"{file.name}.windows.jsonl", settings)
            # An image that exhausts memory or a kernel does not affect the next one.
            try:
                result = self.job.detect(frame, budget=budget, finished=log)
            except (VGTokError, RuntimeError, MemoryError) as error:
                if log is not None and not len(log):
                    log.remove()
                raise InputError(str(error) if str(error).startswith(str(path)) else f"{item}: {error}") from None
            self._write(file, seen, result, frame, advance)
        if log is not None:
            log.remove()

    def _write(self, file: File, seen: list[int], result: "Result", frame: Frame, advance: Callable[[], None]) -> None:
        """Draw and write the pictures of a file, then log it."""
        entry = record(file.item, result)
        place = getattr(frame, "place", None)
        if place is not None:
            entry["geo"] = geo_fields(place)
        paths = self.job.write_pictures(frame, entry, result.tokens, file.name, file.path)
        source = str(file.path.absolute())
        self.journal.add(file.item, {"stamp": seen, "source": source, "written": paths, **entry})
        self.items.append(file.item)
        advance()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every finished file of this command."""
        found = ((item, self.journal.entries[item]) for item in sorted(self.items, key=self.order.__getitem__))
        return [
            {
                "input": item,
                "detections": len(entry["objects"]),
                "georeferenced": "geo" in entry,
                **{key: entry[key] for key in ("canvas", "tokens", "retained", "ms", "written") if key in entry},
            }
            for item, entry in found
        ]

    def _finished(self, path: Path, item: str) -> bool:
        """Whether an earlier run wrote everything for this file, and it has not changed since."""
        entry = self.journal.entries.get(item)
        if entry is None or entry["stamp"] != stamp(path):
            return False
        return all(is_there(Path(file)) for file in entry["written"])


def _report(fail: Callable[[str, str], None], item: str, error: Exception) -> None:
    """Report a picture that could not be written; any other error is one of this program."""
    if not isinstance(error, VGTokError):
        raise error
    fail(item, str(error))


def _is_current(entry: Mapping[str, Any], folders: AbstractSet[Path]) -> bool:
    """Whether an entry is whole and its image still exists; older entries have no `source`."""
    written, source = entry.get("written"), entry.get("source", "")
    if not (is_record(entry) and "stamp" in entry and isinstance(source, str) and isinstance(written, list)):
        return False
    gone = Path(source).parent in folders and not is_there(Path(source))
    return all(isinstance(file, str) for file in written) and not gone
