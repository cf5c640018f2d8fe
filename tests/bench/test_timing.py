"""Clocks and memory of the benchmarks: what is measured is what was run, and a megabyte is a million bytes."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from vgtok.bench.timing import (
    best_laps,
    in_own_process,
    interleaved_medians,
    peak_extra_megabytes,
    process_peak_megabytes,
)


def test_functions_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        # The first call is as slow as one that has everything to load.
        time.sleep(0.3 if len(order) == 1 else 0.02)

    def quick() -> None:
        order.append("quick")

    times = interleaved_medians({"slow": slow, "quick": quick}, 3)
    assert order == ["slow", "quick"] * 4
    assert 20 <= times["slow"] < 300
    assert times["quick"] < times["slow"]


def test_the_peak_of_the_process_is_in_megabytes() -> None:
    held = bytearray(b"x") * 300_000_000
    own = process_peak_megabytes()
    assert own > len(held) / 1e6
    # The bytes of this process are not those of one it starts.
    assert 10 < in_own_process(process_peak_megabytes) < own - 200


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux has a high-water mark to reset")
def test_extra_memory_is_in_megabytes() -> None:
    # 200 million bytes are 200 MB, and would be 190.7 in units of 2**20.
    extra = peak_extra_megabytes(partial(int, 200_000_000), _filled)
    assert extra is not None
    assert extra == pytest.approx(200, abs=5)


def _filled(count: int) -> int:
    return len(bytearray(b"x") * count)


def test_the_best_of_each_part_counts_after_the_warm_up() -> None:
    order: list[int] = []

    def run(lap: Callable[[], None]) -> None:
        order.append(len(order))
        time.sleep(0.2 if len(order) == 1 else 0.01)
        lap()
        lap()

    first, second = best_laps(run, 2, warm_up=1)
    assert order == [0, 1, 2]
    assert 0.01 <= first < 0.2
    assert second < first
