"""Stages that run beside the network: what comes next is read and tokenized ahead, what was found is drawn behind."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from queue import Full, Queue
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

AHEAD = 2
"""Images in flight on either side of the network: enough to hide their work, few enough for memory."""

_END: Any = object()


def ahead(items: Iterable[Item], count: int = AHEAD) -> Iterator[Item]:
    """Yield the items of an iterable that one thread draws up to `count` ahead; an error comes in its place."""
    source = iter(items)
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, source, _END) for _ in range(count))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, source, _END))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)


def in_groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of up to `size`."""
    source = iter(items)
    while group := list(islice(source, size)):
        yield group


class Behind:
    """Work that one thread does behind the network, in order, with at most `count` tasks waiting."""

    def __init__(self, count: int = AHEAD) -> None:
        self.count = count
        self.pool = ThreadPoolExecutor(1)
        self.waiting: deque[tuple[Future[None], Callable[[Exception], None]]] = deque()

    def add(self, task: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """Have a task done; call `failed` in this thread with its error, now or at a later call."""
        self.waiting.append((self.pool.submit(task), failed))
        while len(self.waiting) > self.count:
            self._collect()

    def finish(self) -> None:
        """Wait for all tasks."""
        while self.waiting:
            self._collect()
        self.pool.shutdown()

    def _collect(self) -> None:
        done, failed = self.waiting.popleft()
        try:
            done.result()
        except Exception as error:
            failed(error)


@contextmanager
def behind() -> Iterator[Behind]:
    """Return a thread for work behind the network; all of it is done at the end, also after an error."""
    worker = Behind()
    try:
        yield worker
    finally:
        worker.finish()


class Feed(Generic[Item]):
    """Items that a thread consumes as they come, by a function that takes an iterator of them."""

    def __init__(self, consume: Callable[[Iterator[Item]], None]) -> None:
        self.queue: Queue[Item] = Queue(AHEAD)
        self.pool = ThreadPoolExecutor(1)
        self.broken: BaseException | None = None
        self.done = self.pool.submit(consume, self._items())

    def put(self, item: Item) -> None:
        """Hand an item over; waits while the thread is behind, and not if it has ended."""
        while not self.done.done():
            try:
                self.queue.put(item, timeout=0.2)
                return
            except Full:
                continue

    def close(self, error: BaseException | None = None) -> None:
        """End the items, with an error for the thread if there is one; raise the thread's own."""
        self.broken = error
        self.put(_END)
        self.pool.shutdown()
        if error is None:
            self.done.result()

    def _items(self) -> Iterator[Item]:
        while (item := self.queue.get()) is not _END:
            yield item
        if self.broken is not None:
            raise self.broken
