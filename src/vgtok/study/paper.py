"""Figures of the paper that several studies use: thresholds, and accuracies in points.

Thresholds are percentiles by data set, gate rank and budget. Accuracies are of Co-DETR with an EVA-02 ViT-L encoder:
trained cells are means of three finetunes at their own budget, zero-shot cells one dense checkpoint with the tokenizer
swapped in.
"""

from collections.abc import Mapping

DENSE = "dense"
SINGLE_PASS = "Single-pass"
TOP_HAT = "Top-hat"
GATED = "Top-hat + gate"
FUSED = "Top-hat (+) lambda"
FUSED_GATED = "Top-hat (+) lambda + gate"
COMPACT = "Compact"
GATED_33 = "Top-hat + gate, 33 px"
SCORE_GATE = "Top-hat + score as gate"
RANDOM_GATE = "Top-hat + random gate"
RANDOM = "random"
QUADTREES = (TOP_HAT, GATED, FUSED, FUSED_GATED)

BUDGETS = (0.80, 0.70, 0.60, 0.40, 0.20)

INVERTED: dict[str, dict[float, tuple[float | None, ...]]] = {
    "visdrone": {
        0.0: (37.91, 51.53, 63.44, 81.88, 94.58),
        0.05: (32.16, 47.12, 60.28, 80.45, 94.21),
        0.10: (25.56, 42.03, 56.54, 78.82, 93.79),
        0.20: (5.62, 29.06, 47.01, 74.82, 92.76),
        0.30: (None, 8.66, 33.43, 69.16, 91.38),
        0.40: (None, None, 12.08, 60.66, 89.41),
    },
    "aitodv2": {
        0.0: (46.79, 59.79, 69.98, 84.90, 95.17),
        0.10: (32.11, 50.98, 64.13, 82.52, 94.51),
        0.20: (None, 36.70, 55.70, 79.29, 93.66),
        0.30: (None, None, 41.96, 74.69, 92.53),
    },
}
"""Table A12: the percentile that delivers each of BUDGETS at a rank; None if no percentile does."""

AUDIT_BUDGETS = (0.70, 0.40, 0.20)
"""The budgets of the node-level audits, which use the ungated percentiles."""


def percentile(data: str, rank: float, budget: float) -> float:
    """Return the paper's percentile for a reachable cell."""
    value = INVERTED[data][rank][BUDGETS.index(budget)]
    assert value is not None
    return value


Printed = Mapping[str, float]
"""Metric to points, as far as printed."""

ZERO_SHOT: dict[str, dict[tuple[str, float], Printed]] = {
    "visdrone": {
        (DENSE, 1.0): {"AP": 48.38, "AP50": 74.28, "APS": 39.63},
        (TOP_HAT, 0.80): {"AP": 47.97, "APS": 39.29},
        (TOP_HAT, 0.70): {"AP": 47.58, "APS": 38.92},
        (TOP_HAT, 0.60): {"AP": 46.37, "APS": 37.91},
        (TOP_HAT, 0.40): {"AP": 39.45, "APS": 31.30},
        (TOP_HAT, 0.20): {"AP": 20.22, "APS": 13.84},
        (GATED, 0.80): {"AP": 48.04, "AP50": 73.90, "APS": 39.35},
        (GATED, 0.70): {"AP": 47.76, "APS": 39.13},
        (GATED, 0.60): {"AP": 46.85, "APS": 38.31},
        (GATED, 0.40): {"AP": 40.44, "APS": 32.45},
        (GATED, 0.20): {"AP": 21.18, "APS": 14.82},
    },
    "aitodv2": {
        (DENSE, 1.0): {"AP": 37.27, "AP50": 76.48, "APvt": 19.51, "APt": 37.47, "APs": 43.57, "APm": 56.04},
        (GATED, 0.785): {"AP": 36.29, "AP50": 75.24, "APvt": 19.39},
        (TOP_HAT, 0.70): {"AP": 35.37, "APvt": 17.22, "APt": 35.66, "APs": 40.89, "APm": 52.35},
        (GATED, 0.70): {"AP": 35.66, "APvt": 18.46, "APt": 35.96, "APs": 41.46, "APm": 52.79},
        (FUSED, 0.70): {"AP": 35.47, "APvt": 18.13, "APt": 35.90, "APs": 41.15, "APm": 52.74},
        (FUSED_GATED, 0.70): {"AP": 35.65, "APvt": 18.52, "APt": 36.00, "APs": 41.27, "APm": 52.71},
        (TOP_HAT, 0.40): {"AP": 30.09, "APvt": 14.61, "APt": 30.14, "APs": 34.59, "APm": 45.22},
        (GATED, 0.40): {"AP": 30.16, "APvt": 14.16, "APt": 30.51, "APs": 34.48, "APm": 44.69},
        (FUSED, 0.40): {"AP": 30.36, "APvt": 14.91, "APt": 30.68, "APs": 34.60, "APm": 45.03},
        (FUSED_GATED, 0.40): {"AP": 30.19, "APvt": 14.35, "APt": 30.54, "APs": 34.53, "APm": 44.81},
        (TOP_HAT, 0.20): {"AP": 20.40, "APvt": 9.62, "APt": 20.10, "APs": 23.33, "APm": 33.69},
        (GATED, 0.20): {"AP": 20.70, "APvt": 9.32, "APt": 20.46, "APs": 23.88, "APm": 33.69},
        (FUSED, 0.20): {"AP": 21.03, "APvt": 9.71, "APt": 20.96, "APs": 24.24, "APm": 33.63},
        (FUSED_GATED, 0.20): {"AP": 20.54, "APvt": 8.83, "APt": 20.24, "APs": 23.91, "APm": 32.89},
    },
}
"""Tables 1, 2, A3 and A7."""

ZERO_SHOT_EFFECT: dict[float, Printed] = {
    0.80: {"AP": 0.07, "APS": 0.05},
    0.70: {"AP": 0.18, "APS": 0.21},
    0.60: {"AP": 0.48, "APS": 0.41},
    0.40: {"AP": 1.00, "APS": 1.15},
    0.20: {"AP": 0.96, "APS": 0.97},
}
"""Table A3: the gate effect on VisDrone, computed on unrounded values."""

SINGLE_PASS_RUNGS: dict[float, Printed] = {
    5: {"retained": 0.965},
    10: {"retained": 0.928, "AP": 48.43, "APS": 39.64},
    20: {"retained": 0.851, "AP": 48.30},
    40: {"retained": 0.700, "AP": 47.58, "AP50": 73.50, "APS": 38.85},
    80: {"retained": 0.400, "AP": 31.55, "APS": 21.99},
}
"""Section C: the printed figures of Single-pass on VisDrone, by percentile."""

_TRAINED_AP: dict[str, tuple[float, ...]] = {
    SINGLE_PASS: (47.56, 47.30, 46.64, 43.11),
    TOP_HAT: (47.04, 46.92, 46.38, 43.73, 33.89),
    GATED: (47.11, 47.04, 46.65, 44.22, 35.17),
    FUSED: (47.12, 46.95, 46.36, 43.85, 34.84),
    FUSED_GATED: (47.12, 47.00, 46.66, 43.94, 35.05),
}
_TRAINED_APS: dict[str, tuple[float, ...]] = {
    SINGLE_PASS: (39.00, 38.66, 38.00, 33.93),
    TOP_HAT: (38.41, 38.25, 37.78, 34.99, 24.15),
    GATED: (38.38, 38.46, 38.00, 35.56, 25.66),
    FUSED: (38.42, 38.32, 37.64, 35.10, 25.12),
    FUSED_GATED: (38.42, 38.27, 38.05, 35.18, 25.48),
}
_TRAINED_BANDS: dict[tuple[str, float], Printed] = {
    (GATED, 0.70): {"AP": 47.04, "AP50": 73.16, "APS": 38.46},
    (TOP_HAT, 0.40): {"AP": 43.73, "AP50": 69.29, "AP75": 45.99, "APS": 34.99, "APM": 56.27, "APL": 70.58},
    (GATED, 0.40): {"AP": 44.22, "AP50": 69.78, "AP75": 46.51, "APS": 35.56, "APM": 56.53, "APL": 71.19},
}

TRAINED: dict[str, dict[float, Printed]] = {
    name: {
        budget: _TRAINED_BANDS.get((name, budget), {"AP": ap, "APS": aps})
        for budget, ap, aps in zip(BUDGETS, _TRAINED_AP[name], _TRAINED_APS[name], strict=False)
    }
    for name in _TRAINED_AP
}
"""Tables 4, A4 and A6: VisDrone, finetuned at each budget. Single-pass cannot reach the lowest."""

TRAINED_EFFECT: dict[str, dict[float, float]] = {
    GATED: {0.80: 0.06, 0.70: 0.12, 0.60: 0.27, 0.40: 0.49, 0.20: 1.28},
    FUSED_GATED: {0.80: -0.01, 0.70: 0.04, 0.60: 0.30, 0.40: 0.09, 0.20: 0.20},
}
"""Tables 4 and A4: the gate effect on AP, computed on unrounded values: not always the difference of the cells."""

AITOD_EFFECT: dict[float, Printed] = {
    0.70: {"AP": 0.29, "APvt": 1.24, "APt": 0.30, "APs": 0.57, "APm": 0.44},
    0.40: {"AP": 0.07, "APvt": -0.46, "APt": 0.37},
    0.20: {"AP": 0.30, "APt": 0.36},
}
"""Section E: the gate effect on AI-TOD-v2, where the text gives it; Table A7 prints no effects."""

BANDS_EFFECT: dict[str, tuple[float, float]] = {
    "AP": (0.49, 0.12),
    "AP50": (0.49, 0.09),
    "AP75": (0.52, 0.29),
    "APS": (0.56, 0.23),
    "APM": (0.26, 0.11),
    "APL": (0.61, 1.10),
}
"""Table A6: the gate effect at 40% and its standard deviation."""


def zero_shot(data: str, tokenizer: str, budget: float) -> Printed:
    """Return what the paper prints of a zero-shot cell, if anything; other data sets are compared with VisDrone."""
    return ZERO_SHOT.get(data, ZERO_SHOT["visdrone"]).get((tokenizer, budget), {})
