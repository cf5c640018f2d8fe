"""A budget over a stream: the mean is held, every share is within its bounds, busy images get more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vgtok import StreamBudget, Tokenizer
from vgtok.errors import BudgetError, InputError

CANVAS = (256, 128)


def _frame(seed: int, busy: float) -> NDArray[np.uint8]:
    """Return a gray frame of which a share is full of small dots."""
    generator = np.random.default_rng(seed)
    frame = np.full((128, 256, 3), 90, dtype=np.uint8)
    frame += generator.integers(0, 6, frame.shape, dtype=np.uint8)
    width = round(256 * busy)
    for _ in range(round(150 * busy)):
        x, y = generator.integers(0, max(width, 1)), generator.integers(0, 124)
        frame[y : y + 4, x : x + 4] = 230
    return frame


def _stream(budget: float, **more: tuple[float, float]) -> StreamBudget:
    return StreamBudget(budget, tokenizer=Tokenizer(budget=budget, canvas=CANVAS), **more)


@given(st.lists(st.floats(0, 1), min_size=55, max_size=70), st.sampled_from([0.2, 0.4, 0.7]))
@settings(max_examples=5)
def test_the_mean_is_held_from_the_50th_frame_on_and_no_share_leaves_its_bounds(
    busy: list[float], budget: float
) -> None:
    stream = _stream(budget)
    low, high = stream.bounds
    for number, one in enumerate(busy, start=1):
        share = stream.share(_frame(number, one))
        assert low <= share <= high
        assert number < 50 or abs((stream.mean or 0) - budget) <= 0.005


def test_a_stream_that_turns_busy_for_good_is_held_too() -> None:
    stream = _stream(0.4)
    shares = [stream.share(_frame(number, 0.1 if number < 60 else 0.9)) for number in range(120)]
    assert abs(np.mean(shares) - 0.4) <= 0.005
    # The first busy frame gets more; soon the mean is at its limit.
    assert shares[60] > 0.4


def test_busy_frames_get_more_than_calm_ones() -> None:
    stream = _stream(0.4)
    shares = np.array([stream.share(_frame(number, 0.1 + 0.7 * (number % 2))) for number in range(60)])
    assert shares[10::2].max() < shares[11::2].min()


def test_tokens_have_the_share_that_was_counted() -> None:
    stream = _stream(0.4)
    tokens = [stream(_frame(number, number / 10)) for number in range(10)]
    assert stream.retained == pytest.approx(sum(one.retained for one in tokens))
    assert stream.count == 10
    for one in tokens:
        one.validate()


def test_a_stream_goes_on_where_it_stopped() -> None:
    stream = _stream(0.4)
    for _ in range(60):
        stream.book(0.41)
    # A debt of 60 points is paid back before anything else.
    assert stream.share(_frame(0, 0.9)) < 0.4


def test_one_image_gets_the_budget_itself() -> None:
    assert _stream(0.4).share(_frame(0, 0.5)) == pytest.approx(0.4, abs=0.02)


def test_bounds_that_leave_no_room_are_per_image_budgets() -> None:
    stream = _stream(0.4, bounds=(0.4, 0.4))
    assert {stream.share(_frame(n, n / 5)) for n in range(5)} == {
        Tokenizer(budget=0.4, canvas=CANVAS)(_frame(0, 0)).retained
    }


def test_impossible_budgets_are_refused() -> None:
    with pytest.raises(BudgetError):
        StreamBudget(0.01)
    with pytest.raises(BudgetError, match="bounds"):
        StreamBudget(0.4, bounds=(0.5, 0.6))
    with pytest.raises(InputError, match="quadtree"):
        StreamBudget(0.4, tokenizer=Tokenizer(budget=0.4, splitter="single_pass"))
