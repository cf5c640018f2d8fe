"""Thresholds the paper deploys its tokenizers at: percentile per data set, gate rank and budget."""

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
"""Table A12: the percentile that delivers each of BUDGETS at a rank; None where no percentile can."""

AUDIT_BUDGETS = (0.70, 0.40, 0.20)
"""The budgets of the node-level audits, which take the ungated percentiles."""


def percentile(data: str, rank: float, budget: float) -> float:
    """The paper's percentile for a reachable cell."""
    value = INVERTED[data][rank][BUDGETS.index(budget)]
    assert value is not None
    return value
