"""The pipeline on Ray Data: parcels of work enter a pool of workers that were prepared once; tables of rows leave.

A parcel is one block of the data set: Ray Data hands it to a free worker, to another one if that worker or its machine
dies, and waits where results pile up.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import pyarrow

from vgtok import __version__
from vgtok.errors import VGTokError
from vgtok.scale.cluster import Worker, imported_ray, quiet_data, version_problem
from vgtok.scale.frames import Frame, Shard
from vgtok.scale.tasks import FRAME_COLUMNS, Row, Task

if TYPE_CHECKING:
    from ray.data import Dataset

_IN_FLIGHT = 4
"""Parcels that wait at each worker, so that none is idle while Ray Data decides what is next."""


@dataclass(frozen=True)
class Pool:
    """A pipeline to be made: the class of its workers, the arguments of each, what they are given, their number."""

    kind: type[Any]
    settings: dict[str, Any]
    parcels: Sequence[Any]
    workers: int
    worker: Worker

    def dataset(self) -> "Dataset":
        """Return the rows that the workers make of the parcels, computed when they are read."""
        ray = imported_ray()
        quiet_data(ray)
        rows = [{"parcel": pickle.dumps(parcel)} for parcel in self.parcels]
        inputs = ray.data.from_items(rows, override_num_blocks=len(rows))
        # The pool may shrink: where a machine is gone for good, the others end the run.
        compute = ray.data.ActorPoolStrategy(
            min_size=1, max_size=self.workers, initial_size=self.workers, max_tasks_in_flight_per_actor=_IN_FLIGHT
        )
        dataset: Dataset = inputs.map_batches(
            self.kind,
            batch_size=1,
            batch_format="pyarrow",
            compute=compute,
            num_cpus=self.worker.cpus,
            num_gpus=self.worker.gpus,
            memory=self.worker.memory,
            fn_constructor_kwargs={"home": Home.here(self.worker), **self.settings},
        )
        return dataset


def parcel_of(batch: pyarrow.Table) -> Any:
    """Return the parcel of a block, which `Pool.dataset` has pickled."""
    return pickle.loads(batch["parcel"][0].as_py())


@dataclass(frozen=True)
class Home:
    """What a worker has in common with the driver: versions, the folder that relative paths start from, its size."""

    version: str
    python: str
    folder: str
    worker: Worker

    @classmethod
    def here(cls, worker: Worker) -> "Home":
        """Describe this process."""
        return cls(__version__, ".".join(map(str, sys.version_info[:2])), os.getcwd(), worker)  # noqa: PTH109

    def settle(self) -> None:
        """Make this process a worker: check the versions, go to the folder if it is there, use its own cores only."""
        if problem := version_problem(self.version, self.python):
            raise VGTokError(problem)
        if os.path.isdir(self.folder):  # noqa: PTH112
            os.chdir(self.folder)
        cv2.setNumThreads(self.worker.cpus)


Refusal = Callable[[int], str | None]
"""Why the frame of an index must not be tried, None if it may be."""


class FrameWorker:
    """A worker: prepares its task once, then turns every shard it gets into a table of rows."""

    def __init__(self, task: Task, home: Home) -> None:
        home.settle()
        self.work = task.prepare(home.worker)
        self.schema = pyarrow.schema([*FRAME_COLUMNS, *task.columns])

    def __call__(self, batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Yield the rows of one shard."""
        yield self.table(parcel_of(batch))

    def table(self, shard: Shard, refusal: Refusal = lambda index: None) -> pyarrow.Table:
        """Return a row for every frame of a shard; those that `refusal` gives a reason for are not tried."""
        return pyarrow.Table.from_pylist(list(self._rows(shard, refusal)), schema=self.schema)

    def _rows(self, shard: Shard, refusal: Refusal) -> Iterator[Row]:
        """Yield a row for every frame, in order; a frame that cannot be read is a row with the error."""
        for index, (frame, name) in enumerate(zip(shard.frames(), shard.items(), strict=True), shard.first):
            if isinstance(frame, str):
                yield {"index": index, "frame": name, "source": name, "error": frame}
            else:
                row = self._result(frame, refusal(index))
                yield {"index": index, "frame": frame.item, "source": frame.place, **row}

    def _result(self, frame: Frame, refused: str | None) -> Row:
        if refused:
            return {"error": f"{frame.item}: {refused}"}
        try:
            return self.work(frame)
        except MemoryError:
            return {"error": f"{frame.item}: not enough memory"}
        # A kernel that refuses an image raises RuntimeError.
        except (VGTokError, RuntimeError) as error:
            # Named as the caller did, not by the path that all machines can use.
            text = str(error).replace(frame.place, frame.item)
            return {"error": text if text.startswith(frame.item) else f"{frame.item}: {text}"}
