"""The bounded queue."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from vgtok.serve.limits import RefusedError, WorkQueue


async def queued(queue: WorkQueue, work: Callable[[], Any]) -> Any:
    with queue.place():
        return await queue.run(work)


def test_one_at_a_time_in_order_and_no_more_than_fit() -> None:
    order: list[int] = []
    running: list[int] = []

    def work(number: int) -> int:
        running.append(number)
        assert len(running) == 1
        order.append(number)
        running.remove(number)
        return number

    async def main() -> None:
        queue = WorkQueue(places=3)
        held = threading.Event()
        first = asyncio.create_task(queued(queue, held.wait))
        others = [asyncio.create_task(queued(queue, partial(work, number))) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="busy: 3 requests are being answered") as refused:
            await queued(queue, partial(work, 9))
        assert refused.value.status == 503
        held.set()
        assert await asyncio.gather(first, *others) == [True, 0, 1]
        assert await queued(queue, partial(work, 2)) == 2, "places are free again"

    asyncio.run(main())
    assert order == [0, 1, 2]


def test_work_that_fails_gives_its_place_back() -> None:
    async def main() -> None:
        queue = WorkQueue(places=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await queued(queue, lambda: 1 / 0)
        assert await queued(queue, lambda: 5) == 5

    asyncio.run(main())
