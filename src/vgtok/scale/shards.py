"""Run a task over frames and keep every shard of results as one parquet file: whole, in order, exactly once.

A worker writes the file of a shard whole or not at all, under the number of the shard: a shard that is done again after
a failure replaces its own file. A file carries a digest of its frames and settings, so a later run keeps what is right
and does the rest.
"""

import io
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.parquet as parquet

from vgtok.errors import InputError, VGTokError
from vgtok.scale.attempts import Attempt
from vgtok.scale.cluster import Engine, connected, count_slots, silenced
from vgtok.scale.frames import Piece, Shard, cut_shards
from vgtok.scale.pipeline import FrameWorker, Home, Pool, parcel_of
from vgtok.scale.places import PARQUET, beside, files_in, in_this_process, opened, read, removed, settled, written
from vgtok.scale.streaming import streamed
from vgtok.scale.tasks import Row, Task

HEADER = "shards.json"
_KEY, _FAILED = b"vgtok-key", b"vgtok-failed"


@dataclass(frozen=True)
class Receipt:
    """What a worker says of a shard it has written; `began` and `ended` are times of its machine's clock.

    `fault` is why it cannot work at all.
    """

    number: int
    frames: int
    failed: int
    worker: str
    began: float
    ended: float
    fault: str = ""


@dataclass(frozen=True)
class ShardRun:
    """A finished run: its files in order, and how it went.

    `resumed` frames were finished by an earlier run. `startup_s` passed before the first frame, `seconds` after it.
    """

    files: tuple[str, ...]
    frames: int
    failed: int
    resumed: int
    workers: int
    startup_s: float
    seconds: float

    @property
    def frames_per_second(self) -> float:
        """Frames of this run per second, start-up excluded."""
        return (self.frames - self.resumed) / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the names of the files, for JSON."""
        numbers = {name: value for name, value in vars(self).items() if name != "files"}
        return {"shards": len(self.files), **numbers, "frames_per_second": self.frames_per_second}

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the row of every frame in order, read from the files a few at a time."""
        for place in self.files:
            with opened(place) as file:
                for batch in parquet.ParquetFile(file).iter_batches(batch_size=64, columns=columns):
                    yield from batch.to_pylist()


Told = Callable[[Receipt], None]
"""Hears of every shard as it is finished."""


def run_shards(
    task: Task,
    pieces: Sequence[Piece],
    place: str,
    engine: Engine,
    *,
    settings: Mapping[str, Any] | None = None,
    shard_frames: int | None = None,
    tell: Told = lambda receipt: None,
) -> ShardRun:
    """Run a task over frames; write its rows as parquet files to `place`, a folder all machines see or an address.

    Files that an earlier run finished are kept. `settings` are further values that results depend on; a place with
    files of other settings is refused.
    """
    if in_this_process(place):
        raise InputError(f"{place}: is in the memory of this process, where workers cannot write; use a folder")
    place = settled(place)
    # As they come back from the file: tuples are lists there.
    identity = json.loads(json.dumps({**task.settings, **(settings or {})}, default=repr))
    _check_header(place, identity)
    text = json.dumps(identity, sort_keys=True)
    shards = cut_shards(pieces, shard_frames)
    targets = {
        shard.number: _Target(beside(place, f"part-{shard.number:06d}{PARQUET}"), shard.key(text)) for shard in shards
    }
    done = _finished(place, targets)
    todo = [shard for shard in shards if shard.number not in done]
    started = time.time()
    receipts: dict[int, Receipt] = {}
    used = 0
    if todo:
        with silenced(), connected(engine) as ray:
            fitting = count_slots(ray, engine.worker)
            used = min(engine.workers or fitting, len(todo))
            parcels = [(shard, targets[shard.number]) for shard in todo]
            for receipt in _receipts(Pool(ShardWriter, {"task": task}, parcels, used, engine.worker)):
                # A shard is done twice if its worker died after writing it; its file is one.
                if receipt.number not in receipts:
                    tell(receipt)
                receipts[receipt.number] = receipt
    frames = sum(shard.count for shard in shards)
    began = min((receipt.began for receipt in receipts.values()), default=started)
    ended = max((receipt.ended for receipt in receipts.values()), default=began)
    return ShardRun(
        files=tuple(target.place for target in targets.values()),
        frames=frames,
        failed=sum(done.values()) + sum(receipt.failed for receipt in receipts.values()),
        resumed=frames - sum(shard.count for shard in todo),
        workers=used,
        startup_s=max(0.0, began - started),
        seconds=max(ended - began, 0.0),
    )


@dataclass(frozen=True)
class _Target:
    """The file of a shard and the key of what belongs into it."""

    place: str
    key: str


class ShardWriter(FrameWorker):
    """A worker that writes each shard to its file and yields a receipt."""

    def __init__(self, task: Task, home: Home) -> None:
        self.fault = ""
        try:
            super().__init__(task, home)
        # Told by a receipt: an error here would restart the worker again and again.
        except (VGTokError, ModuleNotFoundError, MemoryError) as error:
            self.fault = str(error) or "a worker has not enough memory to start; ask for more with --worker memory="

    def __call__(self, batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Write one shard and yield its receipt."""
        shard, target = parcel_of(batch)
        began, failed, fault = time.time(), 0, self.fault
        if not fault:
            try:
                failed = self._write(shard, target)
            except VGTokError as error:
                fault = str(error)
        worker = f"{socket.gethostname()}/{os.getpid()}"
        receipt = Receipt(shard.number, shard.count, failed, worker, began, time.time(), fault)
        yield pyarrow.Table.from_pylist([vars(receipt)])

    def _write(self, shard: Shard, target: _Target) -> int:
        """Write the file of a shard; return the number of frames without a result."""
        attempt = Attempt(target.place)
        table = self.table(shard, attempt.refusal)
        failed = len(table) - int(table["error"].null_count)
        table = table.replace_schema_metadata({_KEY: target.key, _FAILED: str(failed)})
        buffer = io.BytesIO()
        parquet.write_table(table, buffer, compression="zstd")
        written(target.place, buffer.getvalue())
        attempt.end()
        return failed


def _receipts(pool: Pool) -> Iterator[Receipt]:
    """Yield the receipt of every shard in the order they finish."""
    for row in streamed(pool):
        receipt = Receipt(**row)
        if receipt.fault:
            raise VGTokError(receipt.fault)
        yield receipt


def _check_header(place: str, settings: Mapping[str, Any]) -> None:
    """Write the settings beside the files; refuse a place with other ones."""
    header = beside(place, HEADER)
    if header in files_in(place, ".json"):
        try:
            found = json.loads(read(header))
        except ValueError:
            found = {}
        differing = sorted(key for key in {*settings, *found} if settings.get(key) != found.get(key))
        if differing and found:
            raise InputError(
                f"{place}: holds results of other settings (they differ in {', '.join(differing)}); choose another "
                "place or delete it"
            )
    written(header, json.dumps(settings, indent=1).encode() + b"\n")


def _finished(place: str, targets: Mapping[int, _Target]) -> dict[int, int]:
    """Return the frames without a result of every shard whose file is whole and right; remove all other files."""
    numbers = {target.place: number for number, target in targets.items()}
    done = {}
    for found in files_in(place, PARQUET):
        number = numbers.get(found)
        failed = None if number is None else _failed(found, targets[number].key)
        if number is None or failed is None:
            removed(found)
        else:
            done[number] = failed
    return done


def _failed(place: str, key: str) -> int | None:
    """Return the frames without a result in a file; None if it is damaged or has another key."""
    try:
        with opened(place) as file:
            metadata = parquet.read_metadata(file).metadata or {}
    except (pyarrow.ArrowException, OSError, VGTokError):
        return None
    failed = metadata.get(_FAILED, b"")
    return int(failed) if metadata.get(_KEY) == key.encode() and failed.isdigit() else None
