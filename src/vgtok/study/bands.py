"""Tables A6 to A8: AP by object size at the operating point, and on AI-TOD-v2 the very-tiny band by class.

Beside the two tokenizers of Table A6 stand the dense model and a random partition of the same count.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vgtok.study.accuracy import RANDOM, Measured, Trial, open_trial, share_of, verdict
from vgtok.study.cells import Reader
from vgtok.study.paper_accuracy import (
    AITOD_EFFECT,
    BANDS_EFFECT,
    DENSE,
    FUSED,
    FUSED_GATED,
    GATED,
    QUADTREES,
    TOP_HAT,
    TRAINED,
    ZERO_SHOT,
    Printed,
)
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[str, float]
_DENSE: Point = (DENSE, 1.0)
_CONTROL = {TOP_HAT: DENSE, GATED: TOP_HAT, FUSED: TOP_HAT, FUSED_GATED: FUSED, RANDOM: GATED}

VISDRONE_POINTS: tuple[Point, ...] = (_DENSE, (RANDOM, 0.40), (TOP_HAT, 0.40), (GATED, 0.40))
AITOD_POINTS: tuple[Point, ...] = (_DENSE, *((name, budget) for budget in (0.70, 0.40, 0.20) for name in QUADTREES))

_CLASSES: dict[str, tuple[int, float, float, float, float]] = {
    "vehicle": (38504, 19.39, 19.50, 19.52, 0.02),
    "person": (5934, 11.07, 10.46, 10.56, 0.10),
    "ship": (2930, 35.07, 31.64, 32.05, 0.41),
    "storage-tank": (1522, 32.20, 31.93, 32.12, 0.19),
    "bridge": (41, 4.84, 3.14, 3.23, 0.09),
    "swimming-pool": (39, 27.74, 26.50, 26.37, -0.13),
    "airplane": (17, 20.34, 9.01, 19.31, 10.30),
    "wind-mill": (8, 5.46, 5.59, 4.55, -1.04),
}
"""Table A8: very-tiny boxes of the test split, then the very-tiny AP dense, of Top-hat and with the gate at 70%, and
the gate effect."""

_BANDS = ("AP", "AP50", "APvt", "APt", "APs", "APm")
_MISSING = "needs aitodv2"


def run(inputs: Inputs) -> Result:
    """Measure every band of the data set's protocol at the operating point, on AI-TOD-v2 at three budgets."""
    trial = open_trial(inputs)
    aitod = trial.dataset.name == "aitodv2"
    readers: dict[Point, Reader] = {
        (name, budget): trial.tokenizer(name, budget) for name, budget in (AITOD_POINTS if aitod else VISDRONE_POINTS)
    }
    cells = trial.measure(readers, "bands")
    rows = [row for point in cells for row in _rows(point, cells, _printed(aitod, point), aitod)]
    if aitod:
        rows += [row for point in (_DENSE, (TOP_HAT, 0.70), (GATED, 0.70)) for row in _class_rows(point, cells)]
    return Result(
        rows,
        [*trial.notes(), *_notes(trial, cells, aitod)],
        _paper_only(aitod),
        plot=lambda figure: _plot(figure, rows, list(trial.protocol.bands)),
        also=trial.also() | {"paper_very_tiny_by_class": _CLASSES},
        read=trial.read,
    )


def _printed(aitod: bool, point: Point) -> Printed:
    if aitod:
        return ZERO_SHOT["aitodv2"].get(point, {})
    return ZERO_SHOT["visdrone"][_DENSE] if point == _DENSE else TRAINED.get(point[0], {}).get(point[1], {})


def _rows(point: Point, cells: dict[Point, Measured], printed: Printed, aitod: bool) -> list[Row]:
    cell = cells[point]
    control = _control(point)
    counts = {"AP": cell.evaluation.instances, **cell.evaluation.band_boxes}
    rows: list[Row] = []
    for metric in cell.evaluation.metrics:
        difference, low, high = (None,) * 3 if control is None else cell.minus(cells[control], metric)
        rows.append(
            {
                "tokenizer": point[0],
                "budget": point[1],
                "band": metric,
                "boxes": counts.get(metric),
                "paper_points": printed.get(metric),
                "points": cell[metric],
                "versus": control and control[0],
                "paper_difference": _printed_effect(aitod, point, metric),
                "difference": difference,
                "low": low,
                "high": high,
            }
        )
    return rows


def _control(point: Point) -> Point | None:
    if point == _DENSE:
        return None
    name = _CONTROL[point[0]]
    return _DENSE if name == DENSE else (name, point[1])


def _printed_effect(aitod: bool, point: Point, metric: str) -> float | None:
    """The gate effect as printed: a difference of two rounded cells may be off by a hundredth."""
    if point[0] != GATED:
        return None
    if aitod:
        return AITOD_EFFECT[point[1]].get(metric)
    return BANDS_EFFECT[metric][0] if metric in BANDS_EFFECT else None


def _class_rows(point: Point, cells: dict[Point, Measured]) -> list[Row]:
    """Table A8: the very-tiny band class by class; differences of single classes come without intervals."""
    control = (TOP_HAT, point[1]) if point[0] == GATED else None
    other = {entry.name: entry.ap for entry in cells[control].evaluation.band_classes} if control else {}
    column = {DENSE: 1, TOP_HAT: 2, GATED: 3}[point[0]]
    rows: list[Row] = []
    for entry in cells[point].evaluation.band_classes:
        printed = _CLASSES.get(entry.name)
        against = other.get(entry.name)
        rows.append(
            {
                "tokenizer": point[0],
                "budget": point[1],
                "band": f"APvt {entry.name}",
                "boxes": entry.boxes,
                "paper_points": printed and printed[column],
                "points": entry.ap,
                "versus": control and control[0],
                "paper_difference": printed[4] if printed and control else None,
                "difference": None if entry.ap is None or against is None else entry.ap - against,
                "low": None,
                "high": None,
            }
        )
    return rows


def _notes(trial: Trial, cells: Mapping[Point, Measured], aitod: bool) -> list[str]:
    budget, small = (0.70 if aitod else 0.40), trial.small
    gated, control = cells[GATED, budget], cells[TOP_HAT, budget]
    notes = [f"Top-hat + gate at {budget:.0%} against dense: AP {share_of(gated, cells[_DENSE])}"]
    for metric in ("AP", "AP50", small):
        notes.append(f"gate effect at {budget:.0%}: {metric} {verdict(*gated.minus(control, metric))}")
    if aitod:
        return [*notes, "Table A7 is zero-shot on the test split; the data opens its val split unless :test follows"]
    over = cells[GATED, 0.40].minus(cells[RANDOM, 0.40], "AP")
    return [
        *notes,
        f"Top-hat + gate over a random partition of the same count at 40%: AP {verdict(*over)}",
        "Table A8, the very-tiny band by class, needs aitodv2; the paper's figures are in the JSON",
        "the paper's Top-hat rows are means of three finetunes at 40%; its gate effects come with deviations of "
        + ", ".join(f"{metric} {deviation:.2f}" for metric, (_, deviation) in BANDS_EFFECT.items()),
    ]


def _paper_only(aitod: bool) -> list[Row]:
    """The tables of the data set that was not given."""
    if aitod:
        return [
            {"tokenizer": name, "budget": 0.40, **TRAINED[name][0.40], "status": "needs visdrone"}
            for name in (TOP_HAT, GATED)
        ]
    return [
        {"tokenizer": name, "budget": budget, **{metric: printed.get(metric) for metric in _BANDS}, "status": _MISSING}
        for (name, budget), printed in ZERO_SHOT["aitodv2"].items()
    ]


def _plot(figure: "Figure", rows: list[Row], bands: list[str]) -> None:
    axes: Any = figure.subplots()
    metrics = ["AP", "AP50", "AP75", *bands]
    budget = min(0.40, max(row["budget"] for row in rows if row["budget"] < 1))
    chosen = [row for row in rows if row["budget"] in (1.0, budget)]
    names = list(dict.fromkeys(row["tokenizer"] for row in chosen))
    width = 0.8 / len(names)
    for number, (colour, name) in enumerate(zip(PALETTE, names, strict=False)):
        own = {row["band"]: row["points"] or 0.0 for row in chosen if row["tokenizer"] == name}
        places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(metrics))]
        label = name if name == DENSE else f"{name}, {budget:.0%}"
        axes.bar(places, [own[metric] for metric in metrics], width, color=colour, label=label)
    axes.set_xticks(range(len(metrics)), metrics)
    axes.set(ylabel="points")
    axes.legend(fontsize=8)


STUDY = Study("bands", "Tables A6 to A8: AP by object size at the operating point", run, takes=DETECTS)
