"""The seed floor, on runs whose answer is known."""

import pytest

from vgtok.errors import InputError
from vgtok.evaluate.resampling import mean_and_deviation, pooled_deviation, seed_floor, standard_error_of_difference


def test_runs_at_the_papers_operating_point() -> None:
    mean, deviation = mean_and_deviation([44.11, 44.26, 44.30])
    assert (round(mean, 2), round(deviation, 2)) == (44.22, 0.10)


@pytest.mark.parametrize(("pooled", "error", "floor"), [(0.0974, 0.0795, 0.16), (0.1342, 0.1095, 0.22)])
def test_the_papers_floors_follow_from_its_pooled_deviations(pooled: float, error: float, floor: float) -> None:
    # The paper's standard errors come from unrounded deviations, so the last digit may differ by one.
    assert standard_error_of_difference(pooled) == pytest.approx(error, abs=1e-4)
    assert round(seed_floor(pooled), 2) == floor


def test_pooling_averages_variances() -> None:
    assert pooled_deviation([3.0, 4.0]) == pytest.approx((12.5) ** 0.5)
    with pytest.raises(InputError):
        pooled_deviation([])
    with pytest.raises(InputError):
        mean_and_deviation([1.0])
