"""The two plots of an evaluation: precision over recall, and AP by class."""

from typing import TYPE_CHECKING, Any

import numpy as np

from vgtok.evaluate.evaluation import Evaluation
from vgtok.evaluate.scoring import THRESHOLDS
from vgtok.study.result import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = (0, 3, 5, 7, 8)
"""Thresholds drawn: 0.50, 0.65, 0.75, 0.85, 0.90; all ten would hide one another."""


def draw_precision_recall(figure: "Figure", evaluation: Evaluation) -> None:
    """Mean precision over classes at every recall, one line per IoU threshold."""
    axes: Any = figure.subplots()
    recalls = np.linspace(0, 1, evaluation.precision.shape[1])
    for colour, number in zip(PALETTE, _SHOWN, strict=False):
        area = 100 * evaluation.precision[number].mean()
        label = f"IoU {THRESHOLDS[number]:.2f}: {area:.1f}"
        axes.plot(recalls, evaluation.precision[number], color=colour, label=label)
    axes.set(xlabel="recall", ylabel="precision, mean over classes", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(title="area under the curve")


def draw_classes(figure: "Figure", evaluation: Evaluation) -> None:
    """AP50 behind AP for every class that has boxes, the strongest first."""
    axes: Any = figure.subplots()
    results = [result for result in evaluation.classes if result.ap is not None]
    results.sort(key=lambda result: -(result.ap or 0))
    names = [f"{result.name}  ({result.boxes:,})" for result in results]
    axes.barh(names, [result.ap50 or 0 for result in results], color=PALETTE[6], alpha=0.55, height=0.75, label="AP50")
    axes.barh(names, [result.ap or 0 for result in results], color=PALETTE[0], height=0.45, label="AP")
    axes.set(xlabel="points; scored boxes in brackets", xlim=(0, 100))
    axes.invert_yaxis()
    axes.legend(loc="lower right")
