"""Picture files through a detector: each annotated beside the others, all noted in one journal."""

from pathlib import Path
from typing import Any

from vgtok.cli.detections import Job, record
from vgtok.cli.journal import Journal, stamp
from vgtok.errors import InputError, VGTokError
from vgtok.files import write_bytes
from vgtok.tokenize.images import read_image


class Pictures:
    """The picture files of one call of the verb; `journal` holds what is finished, `resumed` counts it at the start."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.journal = Journal(job.out / "journal.jsonl", job.settings)
        self.resumed = len(self.journal.entries)

    def detect(self, path: Path, item: str, name: str) -> None:
        """Detect in one file called `item`, write its pictures and note it, unless an earlier run did."""
        from vgtok.detect.result import picture_bytes

        if self._finished(path, item):
            return
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
        self.journal.add(item, {"stamp": stamp(path), "written": [str(target) for target in written.values()], **entry})

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
        return all(Path(file).is_file() for file in entry["written"])
