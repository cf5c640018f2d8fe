"""Tables 1 and 2: the published record on VisDrone val and AI-TOD-v2 test, the measured model in its place among it."""

from typing import TYPE_CHECKING, Any

from vgtok.study.accuracy import open_trial
from vgtok.study.cells import Reader
from vgtok.study.paper_accuracy import DENSE, GATED, TRAINED, ZERO_SHOT
from vgtok.study.result import DETECTS, PALETTE, Inputs, Result, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def run(inputs: Inputs) -> Result:
    """Measure the model at the four budgets of the table and put it in its place by AP."""
    trial = open_trial(inputs)
    table = "aitodv2" if trial.dataset.name == "aitodv2" else "visdrone"
    small, canvas = trial.small, trial.canvas if isinstance(trial.canvas, str) else "x".join(map(str, trial.canvas))
    readers: dict[float, Reader] = {budget: trial.tokenizer(GATED, budget) for budget in _BUDGETS[table]}
    cells = trial.measure(readers, "published")
    encoder = trial.detector.model.config.encoder
    rows = _table_rows(table, small)
    for budget, cell in cells.items():
        name = f"{trial.title}, {100 * budget:g}%"
        rows.append(
            _row("measured", (name, encoder, canvas, cell["AP"] or 0.0, cell["AP50"] or 0.0, cell[small]), small)
        )
    rows.sort(key=lambda row: -float(row["AP"]))
    places = [place for place, row in enumerate(rows, start=1) if row["source"] == "measured"]
    notes = [
        *trial.notes(),
        f"by AP the measured rows stand at {', '.join(map(str, places))} of {len(rows)}",
        f"published and paper rows are figures of the paper's table, over all of its {table} split; measured rows are "
        f"over {len(trial.dataset.images)} images of {trial.dataset.name}",
    ]
    other = "visdrone" if table == "aitodv2" else "aitodv2"
    missing = [{**row, "status": f"needs {other}"} for row in _table_rows(other, _SMALL[other])]
    return Result(rows, notes, missing, plot=lambda figure: _plot(figure, rows), also=trial.also(), read=trial.read)


_SMALL = {"visdrone": "APS", "aitodv2": "APvt"}


def _table_rows(table: str, small: str) -> list[Row]:
    published = _AITOD if table == "aitodv2" else _VISDRONE
    rows = [*(_row("published", entry, small) for entry in published), *(_row("paper", e, small) for e in _OURS[table])]
    return sorted(rows, key=lambda row: -float(row["AP"]))


def _row(source: str, entry: _Entry, small: str) -> Row:
    method, backbone, size, ap, ap50, band = entry
    return {
        "method": method,
        "backbone": backbone,
        "input": size,
        "source": source,
        "AP": ap,
        "AP50": ap50,
        small: band,
    }


def _plot(figure: "Figure", rows: list[Row]) -> None:
    axes: Any = figure.subplots()
    colours = {"published": "0.7", "paper": PALETTE[0], "measured": PALETTE[1]}
    places = range(len(rows))
    for source, colour in colours.items():
        own = [place for place in places if rows[place]["source"] == source]
        axes.barh(own, [rows[place]["AP"] for place in own], color=colour, height=0.7, label=source)
    axes.set_yticks(list(places), [row["method"] for row in rows], fontsize=7)
    axes.set(xlabel="AP")
    axes.invert_yaxis()
    axes.legend()


STUDY = Study("published", "Tables 1 and 2: the published record and the measured model", run, takes=DETECTS)
