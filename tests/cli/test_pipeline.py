"""Work beside the network: in order, errors in their place, nothing left running and nothing left undone."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from vgtok.cli.pipeline import Feed, ahead, behind, in_groups


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise ValueError("the end")


def test_items_come_in_order_and_an_error_in_its_place() -> None:
    before = threading.active_count()
    assert list(ahead(range(20))) == list(range(20))
    assert list(ahead([])) == []
    items = ahead(failing(5))
    assert [next(items) for _ in range(5)] == list(range(5))
    with pytest.raises(ValueError, match="the end"):
        next(items)
    assert threading.active_count() == before


def test_no_more_is_drawn_than_is_in_flight() -> None:
    drawn: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    taken = ahead(counted(), 3)
    assert next(taken) == 0
    taken.close()  # type: ignore[attr-defined]
    assert len(drawn) <= 4


def test_groups_are_full_but_for_the_last() -> None:
    assert list(in_groups(range(5), 2)) == [[0, 1], [2, 3], [4]]


def test_all_that_was_found_is_written_also_after_an_interruption() -> None:
    written: list[int] = []
    failures: list[str] = []

    def write(number: int) -> None:
        if number == 3:
            raise ValueError("full")
        written.append(number)

    def interrupted() -> None:
        with behind() as writer:
            for number in range(8):
                writer.add(partial(write, number), lambda error: failures.append(str(error)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written == [0, 1, 2, 4, 5, 6, 7]
    assert failures == ["full"]


def test_a_feed_ends_with_its_items_or_with_the_error_of_its_source() -> None:
    got: list[int] = []
    feed: Feed[int] = Feed(lambda items: got.extend(items))
    for number in range(10):
        feed.put(number)
    feed.close()
    assert got == list(range(10))

    ended: list[str] = []

    def consume(items: Iterator[int]) -> None:
        try:
            list(items)
        except KeyboardInterrupt:
            ended.append("interrupted")
            raise

    broken: Feed[int] = Feed(consume)
    broken.put(1)
    broken.close(KeyboardInterrupt())
    assert ended == ["interrupted"]


def test_a_consumer_that_fails_is_not_waited_for() -> None:
    def consume(items: Iterator[int]) -> None:
        next(items)
        raise OSError("disk full")

    feed: Feed[int] = Feed(consume)
    for number in range(50):
        feed.put(number)
    with pytest.raises(OSError, match="disk full"):
        feed.close()
