"""Map a function over items on a cluster, in order: what `vgtok.parallel` does with the processes of one machine."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow

from vgtok.errors import VGTokError
from vgtok.parallel import progress_bar
from vgtok.scale.cluster import Engine, connected, count_slots, silenced
from vgtok.scale.pipeline import Home, Pool, parcel_of
from vgtok.scale.streaming import streamed

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_cluster(
    function: Callable[[Item], Result], items: Sequence[Item], engine: Engine, *, label: str
) -> Iterator[Result]:
    """Yield `function(item)` for every item, in order, with a progress bar on standard error.

    The function and the items must be picklable: a module-level function, a frozen dataclass.
    """
    if not items:
        return
    with silenced(), connected(engine) as ray, progress_bar() as progress:
        workers = min(engine.workers or count_slots(ray, engine.worker), len(items))
        count_slots(ray, engine.worker)
        task = progress.add_task(f"{label}, {workers} workers", total=len(items))
        pool = Pool(ItemWorker, {"function": function}, list(enumerate(items)), workers, engine.worker)
        waiting: dict[int, Any] = {}
        following = 0
        for row in streamed(pool):
            waiting[row["number"]] = row["result"]
            progress.advance(task)
            while following in waiting:
                # Made by a worker of this run, which this process has started.
                result, error = pickle.loads(waiting.pop(following))
                if error is not None:
                    raise error
                yield result
                following += 1


class ItemWorker:
    """A worker that applies the function to the items it gets."""

    def __init__(self, function: Callable[[Any], Any], home: Home) -> None:
        self.function, self.home = function, home
        self.settled = False

    def __call__(self, batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Yield the number of an item and the result, or the error, pickled."""
        number, item = parcel_of(batch)
        result, error = None, None
        try:
            if not self.settled:
                self.home.settle()
                self.settled = True
            result = self.function(item)
        except VGTokError as problem:
            error = problem
        yield pyarrow.table({"number": [number], "result": [pickle.dumps((result, error))]})
