"""Printed gate effects and classes of AI-TOD-v2 are the paper's."""

import numpy as np
import pytest

from vgtok.study.bands import _CLASSES, _printed_effect
from vgtok.study.paper import AITOD_EFFECT, GATED, TOP_HAT, ZERO_SHOT


def test_gate_effects_on_aitod_are_the_printed_ones() -> None:
    cells = ZERO_SHOT["aitodv2"]
    for budget, effects in AITOD_EFFECT.items():
        for metric, value in effects.items():
            assert _printed_effect(True, (GATED, budget), metric) == value
            difference = cells[GATED, budget][metric] - cells[TOP_HAT, budget][metric]
            assert difference == pytest.approx(value, abs=0.0101)
    # The one where rounded cells are a hundredth off.
    assert _printed_effect(True, (GATED, 0.40), "APvt") == -0.46
    assert _printed_effect(True, (GATED, 0.40), "APm") is None
    assert _printed_effect(False, (GATED, 0.40), "APS") == 0.56
    assert _printed_effect(False, (TOP_HAT, 0.40), "APS") is None


def test_classes_add_up_to_the_band() -> None:
    for column, name in ((2, TOP_HAT), (3, GATED)):
        mean = np.mean([values[column] for values in _CLASSES.values()])
        assert mean == pytest.approx(ZERO_SHOT["aitodv2"][name, 0.70]["APvt"], abs=0.006)
    assert all(values[3] - values[2] == pytest.approx(values[4], abs=0.0101) for values in _CLASSES.values())
    assert sum(values[0] for values in _CLASSES.values()) == 48_995
