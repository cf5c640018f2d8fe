"""Picture files through a detector: each annotated beside the others, all noted in one journal."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

from vgtok.cli.detections import Job, is_record, record
from vgtok.errors import InputError, VGTokError
from vgtok.files import is_there, stamp, write_bytes
from vgtok.journal import Journal
from vgtok.tokenize.images import read_image


class Pictures:
    """The picture files of one call of the verb; `journal` holds what is finished, `resumed` counts it at the start.

    `folders` are those the pictures of the call lie in: what is finished of them and no longer there is forgotten.
    """

    def __init__(self, job: Job, folders: AbstractSet[Path]) -> None:
        self.job = job
        self.journal = Journal(job.out / "journal.jsonl", job.settings, partial(_is_current, folders=folders))
        self.resumed = len(self.journal.entries)

    def detect(self, path: Path, item: str, name: str) -> None:
        """Detect in one file called `item`, write its pictures and note it, unless an earlier run did."""
        from vgtok.detect.result import picture_bytes

        if self._finished(path, item):
            return
        seen = stamp(path)
        pixels = read_image(path)
        # What one frame does to the model (memory, a kernel) says nothing about the next.
        try:
            result = self.job.detect(pixels)
        except (VGTokError, RuntimeError, MemoryError) as error:
            raise InputError(f"{item}: {error}") from None
        entry = record(item, result)
        written = self.job.targets(name, ".jpg")
        for kind, target in written.items():
            write_bytes(target, picture_bytes(self.job.draw(pixels, entry["objects"], kind), target))
        files = [str(target) for target in written.values()]
        self.journal.add(item, {"stamp": seen, "source": str(path.absolute()), "written": files, **entry})

    def rows(self) -> list[dict[str, Any]]:
        """A line for every finished file."""
        return [
            {
                "input": item,
                "detections": len(entry["objects"]),
                **{key: entry[key] for key in ("tokens", "retained", "ms", "written")},
            }
            for item, entry in self.journal.entries.items()
        ]

    def _finished(self, path: Path, item: str) -> bool:
        """Whether an earlier run wrote everything for this file, and it has not changed since."""
        entry = self.journal.entries.get(item)
        if entry is None or entry["stamp"] != stamp(path):
            return False
        return all(is_there(Path(file)) for file in entry["written"])


def _is_current(entry: Mapping[str, Any], folders: AbstractSet[Path]) -> bool:
    """Whether an entry is whole and its picture was not deleted since; older entries do not say where it lies."""
    written, source = entry.get("written"), entry.get("source", "")
    if not (is_record(entry) and "stamp" in entry and isinstance(source, str) and isinstance(written, list)):
        return False
    gone = Path(source).parent in folders and not is_there(Path(source))
    return all(isinstance(file, str) for file in written) and not gone
