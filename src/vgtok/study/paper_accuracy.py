"""Every accuracy the paper prints, in points, by data set, tokenizer and budget: the paper's columns of the studies.

All of it is Co-DETR with an EVA-02 ViT-L encoder. Trained cells are means of three finetunes at their own budget;
zero-shot cells are one dense checkpoint with the tokenizer swapped in.
"""

from collections.abc import Mapping

DENSE = "dense"
SINGLE_PASS = "Single-pass"
TOP_HAT = "Top-hat"
GATED = "Top-hat + gate"
FUSED = "Top-hat (+) lambda"
FUSED_GATED = "Top-hat (+) lambda + gate"
QUADTREES = (TOP_HAT, GATED, FUSED, FUSED_GATED)

Printed = Mapping[str, float]
"""Metric to points, those that are printed."""

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
"""Table A3: what the gate adds on VisDrone, taken on unrounded values."""

SINGLE_PASS_RUNGS: dict[float, Printed] = {
    5: {"retained": 0.965},
    10: {"retained": 0.928, "AP": 48.43, "APS": 39.64},
    20: {"retained": 0.851, "AP": 48.30},
    40: {"retained": 0.700, "AP": 47.58, "AP50": 73.50, "APS": 38.85},
    80: {"retained": 0.400, "AP": 31.55, "APS": 21.99},
}
"""Section C: what is printed of the twelve thresholds of Single-pass on VisDrone."""

TRAINED: dict[str, dict[float, Printed]] = {
    SINGLE_PASS: {
        0.80: {"AP": 47.56, "APS": 39.00},
        0.70: {"AP": 47.30, "APS": 38.66},
        0.60: {"AP": 46.64, "APS": 38.00},
        0.40: {"AP": 43.11, "APS": 33.93},
    },
    TOP_HAT: {
        0.80: {"AP": 47.04, "APS": 38.41},
        0.70: {"AP": 46.92, "APS": 38.25},
        0.60: {"AP": 46.38, "APS": 37.78},
        0.40: {"AP": 43.73, "AP50": 69.29, "AP75": 45.99, "APS": 34.99, "APM": 56.27, "APL": 70.58},
        0.20: {"AP": 33.89, "APS": 24.15},
    },
    GATED: {
        0.80: {"AP": 47.11, "APS": 38.38},
        0.70: {"AP": 47.04, "AP50": 73.16, "APS": 38.46},
        0.60: {"AP": 46.65, "APS": 38.00},
        0.40: {"AP": 44.22, "AP50": 69.78, "AP75": 46.51, "APS": 35.56, "APM": 56.53, "APL": 71.19},
        0.20: {"AP": 35.17, "APS": 25.66},
    },
    FUSED: {
        0.80: {"AP": 47.12, "APS": 38.42},
        0.70: {"AP": 46.95, "APS": 38.32},
        0.60: {"AP": 46.36, "APS": 37.64},
        0.40: {"AP": 43.85, "APS": 35.10},
        0.20: {"AP": 34.84, "APS": 25.12},
    },
    FUSED_GATED: {
        0.80: {"AP": 47.12, "APS": 38.42},
        0.70: {"AP": 47.00, "APS": 38.27},
        0.60: {"AP": 46.66, "APS": 38.05},
        0.40: {"AP": 43.94, "APS": 35.18},
        0.20: {"AP": 35.05, "APS": 25.48},
    },
}
"""Tables 4, A4 and A6: VisDrone, finetuned at each budget."""

TRAINED_EFFECT: dict[str, dict[float, float]] = {
    GATED: {0.80: 0.06, 0.70: 0.12, 0.60: 0.27, 0.40: 0.49, 0.20: 1.28},
    FUSED_GATED: {0.80: -0.01, 0.70: 0.04, 0.60: 0.30, 0.40: 0.09, 0.20: 0.20},
}
"""Tables 4 and A4: what the gate adds to AP, taken on unrounded values, so not always the difference of the cells."""

AITOD_EFFECT: dict[float, Printed] = {
    0.70: {"AP": 0.29, "APvt": 1.24, "APt": 0.30, "APs": 0.57, "APm": 0.44},
    0.40: {"AP": 0.07, "APvt": -0.46, "APt": 0.37},
    0.20: {"AP": 0.30, "APt": 0.36},
}
"""Section E: what the gate adds to the top-hat on AI-TOD-v2, where the text says so; Table A7 prints no effects."""

BANDS_EFFECT: dict[str, tuple[float, float]] = {
    "AP": (0.49, 0.12),
    "AP50": (0.49, 0.09),
    "AP75": (0.52, 0.29),
    "APS": (0.56, 0.23),
    "APM": (0.26, 0.11),
    "APL": (0.61, 1.10),
}
"""Table A6: the gate effect at 40% and its deviation."""


def zero_shot(data: str, tokenizer: str, budget: float) -> Printed:
    """What the paper prints of a zero-shot cell; nothing where it prints none. Other data stands beside VisDrone's."""
    return ZERO_SHOT.get(data, ZERO_SHOT["visdrone"]).get((tokenizer, budget), {})
