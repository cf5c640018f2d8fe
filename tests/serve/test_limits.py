"""What content is allowed, and the bounded queue."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.tokenize.hostile_files import encoded, tiff
from vgtok.serve.limits import Limits, RefusedError, WorkQueue

from .conftest import picture

EXIF = Image.Exif()
EXIF[0x0112] = 1
ORDINARY: dict[str, dict[str, Any]] = {
    "JPEG": {"exif": EXIF}, "PNG": {"exif": EXIF}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}, "BMP": {},
    "GIF": {}, "JPEG2000": {}, "AVIF": {}, "PPM": {},
    "MPO": {"save_all": True, "append_images": [Image.new("RGB", (32, 24))]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ORDINARY)
@pytest.mark.parametrize("seed", range(3))
def test_ordinary_files_are_of_one_format(kind: str, seed: int) -> None:
    pixels = picture(seed, 96, 64)
    assert Limits().read(encoded(Image.fromarray(pixels), kind, **ORDINARY[kind]), "a").shape == pixels.shape


def test_big_endian_gray_and_deep_files_are_of_one_format() -> None:
    deep = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100)
    for data in (encoded(deep, "TIFF"), encoded(deep, "PNG"), encoded(deep, "TIFF", big_tiff=True), tiff(8, 6)):
        assert Limits().read(data, "a").shape[2] == 3
    swapped = Image.frombytes("I;16B", (4, 2), bytes(16))
    assert Limits().read(encoded(swapped, "TIFF"), "a").shape == (2, 4, 3)


@pytest.mark.parametrize(
    "kind", ["EPS", "ICO", "PCX", "SGI", "TGA", "IM", "DDS", "DIB", "ICNS", "MSP", "SPIDER", "XBM"]
)
def test_other_formats_are_forbidden(kind: str) -> None:
    mode = {"MSP": "1", "XBM": "1", "SPIDER": "F"}.get(kind, "RGB")
    data = encoded(Image.fromarray(picture(0, 64, 64)).convert(mode), kind)
    with pytest.raises(RefusedError, match=f"^a.jpg: content of (CUR and )?{kind}; only one of JPEG, PNG") as refused:
        Limits().read(data, "a.jpg")
    assert refused.value.status == 403


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


def test_a_queue_that_finishes_waits_for_what_runs_and_refuses_the_rest() -> None:
    async def main() -> None:
        queue, begun, held = WorkQueue(places=3), threading.Event(), threading.Event()

        def work() -> bool:
            begun.set()
            return held.wait()

        running = asyncio.create_task(queued(queue, work))
        await asyncio.to_thread(begun.wait)
        waiting = asyncio.create_task(queued(queue, lambda: True))
        finishing = asyncio.create_task(asyncio.to_thread(queue.finish))
        await asyncio.sleep(0.05)
        assert not finishing.done()
        held.set()
        assert await running
        for late in (waiting, queued(queue, lambda: True)):
            with pytest.raises(RefusedError, match="server: stopping") as refused:
                await late
            assert refused.value.status == 503
        await finishing

    asyncio.run(main())
