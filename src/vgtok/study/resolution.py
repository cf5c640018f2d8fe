"""One checkpoint at other resolutions, Table A13, and among the published record, Tables 1 and 2.

What leaves are rows of AP: all tokens and 70% of them at four input resolutions, and the measured model in its place
among the detectors the paper lists for VisDrone val and AI-TOD-v2 test.
"""

from itertools import pairwise

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.show.plot import PALETTE
from vgtok.study.accuracy import Measured, Trial, open_trial, signed
from vgtok.study.cells import Reader
from vgtok.study.paper import DENSE, GATED, TRAINED, ZERO_SHOT
from vgtok.study.result import (
    DETECTS,
    Bars,
    Inputs,
    Line,
    Panel,
    Result,
    Row,
    Study,
    bar_plot,
    line_plot,
    paired,
    paper_only,
)

_SIDES = (1536, 2048, 2304, 2560)
"""Long sides of the canvas; a model with another canvas uses the same ratios to its own."""

_PERCENTILE = 40.0
"""Where Single-pass, the tokenizer of the paper's table, keeps 70%."""

_RESOLUTIONS: dict[int, tuple[float, float, float, float, float]] = {
    1536: (45.52, 35.97, 44.25, 34.94, 1.28),
    2048: (48.38, 39.63, 47.58, 38.85, 0.80),
    2304: (48.86, 40.39, 48.14, 39.85, 0.72),
    2560: (49.39, 41.04, 48.70, 40.45, 0.69),
}
"""AP and APS at 100%, at 70%, and the gap of AP, computed on unrounded values."""


def resolution(inputs: Inputs) -> Result:
    """Measure both budgets at every resolution."""
    trial = open_trial(inputs)
    readers: dict[tuple[int, str], Reader] = {}
    for side in _SIDES:
        canvas = _canvas(trial, side)
        readers[side, "100"] = trial.tokenizer(DENSE, canvas=canvas)
        readers[side, "70"] = trial.single_pass(_PERCENTILE, canvas=canvas)
    cells = trial.measure(readers, "resolution")
    rows = [_row(trial, side, cells[side, "100"], cells[side, "70"]) for side in _SIDES]
    gaps = [row["gap"] for row in rows]
    narrows = all(a is not None and b is not None and b <= a for a, b in pairwise(gaps))
    notes = [
        f"the gap {'narrows at every step, as in the paper' if narrows else 'does not narrow at every step here'}: "
        f"{', '.join(map(signed, gaps))}; paper {', '.join(signed(_RESOLUTIONS[side][4]) for side in _SIDES)}",
        "70% is Single-pass at percentile 40, as in the paper; low and high belong to the gap",
    ]
    widths = [int(row["canvas"].split("x")[0]) for row in rows]
    panels = []
    for metric in ("AP", trial.small):
        lines = []
        for number, share in enumerate(("100", "70")):
            lines.append(Line(widths, [row[f"{metric}_{share}"] for row in rows], f"{share}%", number))
            printed = [row[f"paper_{metric}_{share}"] for row in rows]
            if None not in printed:
                lines.append(Line(widths, printed, f"{share}%, paper", number, "x--"))
        axes = {"xlabel": "long side of the canvas, px", "ylabel": metric, "ylim": (0, None)}
        panels.append(Panel(lines, axes))
    return trial.result(rows, notes, line_plot(*panels))


def _canvas(trial: Trial, side: int) -> tuple[int, int]:
    long, short = DEFAULT_CANVAS if trial.canvas == "native" else trial.canvas
    return round(long * side / DEFAULT_CANVAS[0]), round(short * side / DEFAULT_CANVAS[0])


def _row(trial: Trial, side: int, dense: Measured, fewer: Measured) -> Row:
    small = trial.small
    paper = (None,) * 5 if trial.dataset.name == "aitodv2" else _RESOLUTIONS[side]
    gap, low, high = dense.minus(fewer, "AP")
    columns = ("AP_100", f"{small}_100", "AP_70", f"{small}_70", "gap")
    measured = {
        "AP_100": dense["AP"],
        f"{small}_100": dense[small],
        "retained": fewer.retained,
        "AP_70": fewer["AP"],
        f"{small}_70": fewer[small],
        "gap": gap,
    }
    canvas = "x".join(map(str, _canvas(trial, side)))
    return {"canvas": canvas, **paired(measured, dict(zip(columns, paper, strict=True))), "low": low, "high": high}


_Entry = tuple[str, str, str, float, float, float | None]

_VISDRONE: tuple[_Entry, ...] = (
    ("DroneFINE-L", "Swin-L (G-DINO)", "concurrent", 42.3, 65.8, None),
    ("EVORL", "CSPDarkNet", "multi-crop", 42.2, 66.0, None),
    ("Focus-and-Detect", "ResNeXt-101", "2-stage crop", 42.06, 66.12, 32.0),
    ("Dome-DETR-L", "HGNetv2-B4", "1200x800", 40.5, 64.5, None),
    ("AdaZoom", "ResNeXt-101", "multi-crop", 40.3, 66.9, None),
    ("UFPMP-Det + MS", "ResNeXt-101", "crop + MS", 40.1, 66.8, None),
    ("YOLC + MS", "HRNet", "crop + MS", 39.6, 63.7, 32.9),
    ("Dome-DETR-L", "HGNetv2-B4", "800x800", 39.0, 61.1, None),
    ("YOLC", "HRNet", "crop", 37.8, 61.7, 30.5),
)
"""Method, backbone, input, AP, AP50 and APS."""

_AITOD: tuple[_Entry, ...] = (
    ("ScaleBridge-Det (3.0B)", "MoE 3.0B", "1024x1024", 35.7, 72.1, 16.2),
    ("Dome-DETR-L", "HGNetv2-B4", "800x800", 34.6, 69.2, 19.0),
    ("Dome-DETR-M", "HGNetv2-B2", "800x800", 34.0, 68.4, 18.4),
    ("ScaleBridge-Det (2.0B)", "MoE 2.0B", "1024x1024", 33.6, 71.8, 14.2),
    ("Dome-DETR-S", "HGNetv2-B0", "800x800", 33.3, 67.5, 17.8),
    ("D3R-DETR", "HGNetv2-B0", "800x800", 31.3, 65.1, 16.6),
    ("DQ-DETR", "ResNet-50", "800x800", 30.2, 68.6, 15.3),
    ("RFLA", "DetectoRS", "800x800", 25.7, 58.9, 9.3),
    ("NWD-RKA", "DetectoRS", "800x800", 24.7, 57.2, 9.7),
)
"""Method, backbone, input, AP, AP50 and APvt."""

_OURS: dict[str, tuple[_Entry, ...]] = {
    "visdrone": tuple(
        (f"VGTok, {label}", "ViT-L (EVA-02)", "2048x1152", printed["AP"], printed["AP50"], printed["APS"])
        for label, printed in (
            ("100%", ZERO_SHOT["visdrone"][DENSE, 1.0]),
            ("80%, zero-shot", ZERO_SHOT["visdrone"][GATED, 0.80]),
            ("70%", TRAINED[GATED][0.70]),
            ("40%", TRAINED[GATED][0.40]),
        )
    ),
    "aitodv2": (
        ("VGTok, 100%", "ViT-L (EVA-02)", "2048x2048", 37.27, 76.48, 19.51),
        ("VGTok, 78.5%, zero-shot", "ViT-L (EVA-02)", "2048x2048", 36.29, 75.24, 19.39),
        ("VGTok, 70%", "ViT-L (EVA-02)", "2048x2048", 36.57, 74.39, 18.08),
        ("VGTok, 40%", "ViT-L (EVA-02)", "2048x2048", 34.04, 71.65, 16.26),
    ),
}
"""The paper's own rows."""

_BUDGETS = {"visdrone": (1.0, 0.80, 0.70, 0.40), "aitodv2": (1.0, 0.785, 0.70, 0.40)}


def published(inputs: Inputs) -> Result:
    """Measure the model at the four budgets of the table and rank it among the published detectors by AP."""
    trial = open_trial(inputs)
    table = "aitodv2" if trial.dataset.name == "aitodv2" else "visdrone"
    small, canvas = trial.small, trial.canvas if isinstance(trial.canvas, str) else "x".join(map(str, trial.canvas))
    readers: dict[float, Reader] = {budget: trial.tokenizer(GATED, budget) for budget in _BUDGETS[table]}
    cells = trial.measure(readers, "published")
    encoder = trial.detector.model.config.encoder
    rows = _table_rows(table)
    for budget, cell in cells.items():
        name = f"{trial.title}, {100 * budget:g}%"
        rows.append(
            _entry("measured", (name, encoder, canvas, cell["AP"] or 0.0, cell["AP50"] or 0.0, cell[small]), small)
        )
    rows.sort(key=lambda row: -float(row["AP"]))
    places = [place for place, row in enumerate(rows, start=1) if row["source"] == "measured"]
    notes = [
        f"by AP the measured rows rank {', '.join(map(str, places))} of {len(rows)}",
        f"published and paper rows are figures of the paper's table, over all of its {table} split; measured rows are "
        f"over {len(trial.dataset.images)} images of {trial.dataset.name}",
    ]
    sources = ("published", "paper", "measured")
    series = {source: [row["AP"] if row["source"] == source else 0.0 for row in rows] for source in sources}
    bars = Bars(series, {"xlabel": "AP"}, colors=("0.7", *PALETTE), stacked=True)
    missing = paper_only({name: name for name in _OURS}, table, _table_rows)
    return trial.result(rows, notes, bar_plot([row["method"] for row in rows], bars), paper_only=missing)


def _table_rows(table: str) -> list[Row]:
    """Return the published and the paper's own rows for a data set, best first."""
    small = "APvt" if table == "aitodv2" else "APS"
    rows = [_entry("published", entry, small) for entry in (_AITOD if table == "aitodv2" else _VISDRONE)]
    rows += [_entry("paper", entry, small) for entry in _OURS[table]]
    return sorted(rows, key=lambda row: -float(row["AP"]))


def _entry(source: str, entry: _Entry, small: str) -> Row:
    method, backbone, size, ap, ap50, band = entry
    about = {"method": method, "backbone": backbone, "input": size, "source": source}
    return {**about, "AP": ap, "AP50": ap50, small: band}


STUDIES = (
    Study("resolution", "Table A13: two budgets at four input resolutions", resolution, takes=DETECTS, frames=100),
    Study("published", "Tables 1 and 2: the published record and the measured model", published, takes=DETECTS),
)
