"""The printed figures agree with each other."""

import pytest

from vgtok.study.paper import BANDS_EFFECT, GATED, TOP_HAT, TRAINED, ZERO_SHOT, ZERO_SHOT_EFFECT


def test_the_paper_s_figures_agree_with_each_other() -> None:
    for budget, effect in ZERO_SHOT_EFFECT.items():
        for metric, value in effect.items():
            cells = ZERO_SHOT["visdrone"]
            difference = cells[GATED, budget][metric] - cells[TOP_HAT, budget][metric]
            assert difference == pytest.approx(value, abs=0.0101)
    for metric, (gain, _) in BANDS_EFFECT.items():
        assert TRAINED[GATED][0.40][metric] - TRAINED[TOP_HAT][0.40][metric] == pytest.approx(gain, abs=0.0101)
