"""Rows of a pipeline as they are made, also for a process that is not part of the cluster.

Ray Data runs in a process of the cluster alone. Connected by ray://, this process has a conductor run it there, and
asks for the rows.
"""

import queue
import threading
from collections.abc import Iterator
from typing import Any

from vgtok.errors import VGTokError
from vgtok.scale.cluster import explained, imported_ray
from vgtok.scale.pipeline import Pool
from vgtok.scale.tasks import Row

_END = None
_ASKED = 1.0
"""Seconds an answer of the conductor may take while there are no rows."""
_AT_ONCE = 256


def streamed(pool: Pool) -> Iterator[Row]:
    """Yield the rows of a pipeline in the order they are made; what ends it is told in one sentence."""
    ray = imported_ray()
    try:
        if ray.util.client.ray.is_connected():
            yield from _conducted(ray, pool)
        else:
            yield from pool.dataset().iter_rows()
    # Ray, Ray Data and the tasks raise errors of many kinds.
    except Exception as error:
        raise explained(error) from None


def _conducted(ray: Any, pool: Pool) -> Iterator[Row]:
    conductor = ray.remote(num_cpus=0)(Conductor).remote(pool)
    while True:
        rows, problem, ended = ray.get(conductor.rows.remote())
        yield from rows
        if problem:
            raise VGTokError(problem)
        if ended:
            return


class Conductor:
    """Runs a pipeline in a process of the cluster, and hands out its rows."""

    def __init__(self, pool: Pool) -> None:
        self.found: queue.Queue[Row | None] = queue.Queue(maxsize=_AT_ONCE)
        self.problem = ""
        threading.Thread(target=self._run, args=(pool,), daemon=True).start()

    def rows(self) -> tuple[list[Row], str, bool]:
        """Return the rows made since the last call, the problem if the pipeline failed, and whether it has ended."""
        rows: list[Row] = []
        try:
            while len(rows) < _AT_ONCE:
                row = self.found.get(timeout=0 if rows else _ASKED)
                if row is _END:
                    return rows, self.problem, True
                rows.append(row)
        except queue.Empty:
            pass
        return rows, "", False

    def _run(self, pool: Pool) -> None:
        try:
            for row in pool.dataset().iter_rows():
                self.found.put(row)
        # Ray, Ray Data and the tasks raise errors of many kinds.
        except Exception as error:
            self.problem = str(explained(error))
        self.found.put(_END)
