"""The report of an evaluation as HTML, Markdown and JSON, with plots and the worst images."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok import __version__
from vgtok.data.dataset import corners
from vgtok.evaluate.classes import map_text
from vgtok.evaluate.comparison import Difference
from vgtok.evaluate.evaluation import ClassResult, Evaluation, Mistakes
from vgtok.evaluate.scoring import THRESHOLDS
from vgtok.files import write_bytes, write_text
from vgtok.show.plot import PALETTE, render_plot
from vgtok.show.tables import html_table, markdown_table, markdown_text
from vgtok.tokenize.canvas import read_image

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FOUND, MISSED, FALSE, IGNORED = (60, 200, 90), (235, 40, 60), (255, 170, 0), (150, 150, 160)
LEGEND = {"found": FOUND, "missed": MISSED, "false": FALSE, "ignored": IGNORED}
"""RGB outline per kind of box."""

_LONGEST = 1360
"""Pixels of the longer side of a picture: small boxes are visible, and the page stays small."""


def draw_mistakes(mistakes: Mistakes, index: int, image: object) -> Image.Image:
    """Return the image at `index` with found, missed, false and ignored boxes; missed ones are on top."""
    pixels = read_image(image)
    scale = _LONGEST / max(pixels.shape[:2])
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    canvas = np.asarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=interpolation), dtype=np.uint8)
    canvas = _shaded(canvas, mistakes.truth.regions[index] * scale)
    shown = mistakes.shown.image == index
    missed = (mistakes.truth.image == index) & ~mistakes.found & ~mistakes.truth.crowd
    for boxes, color in (
        (mistakes.shown.boxes[shown & mistakes.neutral], IGNORED),
        (mistakes.shown.boxes[shown & mistakes.correct], FOUND),
        (mistakes.shown.boxes[shown & ~mistakes.correct & ~mistakes.neutral], FALSE),
        (mistakes.truth.boxes[missed], MISSED),
    ):
        for x0, y0, x1, y1 in np.rint(corners([tuple(box) for box in boxes]) * scale).astype(int).tolist():
            cv2.rectangle(canvas, (x0, y0), (x1, y1), color, 1)
    return Image.fromarray(canvas)


def _shaded(canvas: NDArray[np.uint8], regions: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Shade ignored regions gray."""
    shade = canvas.copy()
    for x0, y0, x1, y1 in np.rint(regions).astype(int).tolist():
        cv2.rectangle(shade, (x0, y0), (x1, y1), IGNORED, -1)
    return np.asarray(cv2.addWeighted(shade, 0.5, canvas, 0.5, 0), dtype=np.uint8)


_SHOWN = (0, 3, 5, 7, 8)
"""Thresholds drawn: 0.50, 0.65, 0.75, 0.85, 0.90; all ten would overlap."""


def draw_precision_recall(figure: "Figure", evaluation: Evaluation) -> None:
    """Draw the mean precision over classes at every recall, one line per IoU threshold."""
    axes: Any = figure.subplots()
    recalls = np.linspace(0, 1, evaluation.precision.shape[1])
    for color, number in zip(PALETTE, _SHOWN, strict=False):
        area = 100 * evaluation.precision[number].mean()
        label = f"IoU {THRESHOLDS[number]:.2f}: {area:.1f}"
        axes.plot(recalls, evaluation.precision[number], color=color, label=label)
    axes.set(xlabel="recall", ylabel="precision, mean over classes", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(title="area under the curve")


def draw_classes(figure: "Figure", evaluation: Evaluation) -> None:
    """Draw AP50 behind AP for every class with boxes, the best first."""
    axes: Any = figure.subplots()
    results = [result for result in evaluation.classes if result.ap is not None]
    results.sort(key=lambda result: -(result.ap or 0))
    names = [f"{result.name}  ({result.boxes:,})" for result in results]
    axes.barh(names, [result.ap50 or 0 for result in results], color=PALETTE[6], alpha=0.55, height=0.75, label="AP50")
    axes.barh(names, [result.ap or 0 for result in results], color=PALETTE[0], height=0.45, label="AP")
    axes.set(xlabel="points; scored boxes in brackets", xlim=(0, 100))
    axes.invert_yaxis()
    axes.legend(loc="lower right")


WORST = 6
"""Number of worst images shown."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { color: #555; font-weight: 600; }
img { max-width: 100%; height: auto; } figure { margin: 1.2rem 0; } figcaption, .note { color: #555; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em; }
"""


@dataclass(frozen=True)
class _Table:
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class _Picture:
    file: str
    data: bytes
    caption: str


@dataclass(frozen=True)
class _Report:
    """The contents of a report, in the order both pages show them."""

    title: str
    protocol: str
    facts: str
    worst_note: str
    tables: Sequence[_Table]
    plots: Sequence[_Picture]
    worst: Sequence[_Picture]
    notes: Sequence[str]

    def html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        title = escape(self.title)
        parts = [
            f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>",
            f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>",
            f"<h1>{title}</h1><p>{escape(self.protocol)}.<br>{escape(self.facts)}.</p>",
            *(f"<h2>{escape(table.heading)}</h2>{html_table(table.columns, table.rows)}" for table in self.tables),
            "<h2>Plots</h2>" if self.plots else "",
            *map(_figure, self.plots),
        ]
        if self.worst:
            keys = "".join(
                f"<span class='key' style='background: rgb{color}'></span>{name}" for name, color in LEGEND.items()
            )
            parts.append(f"<h2>Worst images</h2><p>{escape(self.worst_note)}</p><p>{keys}</p>")
            parts.extend(map(_figure, self.worst))
        if self.notes:
            parts.append(f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(note)}</li>' for note in self.notes)}</ul>")
        parts.append(f"<p class='note'>vgtok {__version__}</p></html>\n")
        return "\n".join(parts)

    def markdown(self) -> str:
        """Return the report as Markdown, with its pictures as files beside it."""
        parts = [f"# {markdown_text(self.title)}", f"{self.protocol}.", f"{self.facts}."]
        for table in self.tables:
            rows = [list(map(markdown_text, row)) for row in table.rows]
            columns = list(map(markdown_text, table.columns))
            parts += [f"## {table.heading}", markdown_table(columns, rows, numeric=True)]
        parts += [_markdown_picture(picture) for picture in self.plots]
        if self.worst:
            parts += ["## Worst images", self.worst_note]
        for picture in self.worst:
            parts += [markdown_text(picture.caption), _markdown_picture(picture)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {markdown_text(note)}" for note in self.notes)]
        return "\n\n".join(parts) + "\n"


def write_report(
    evaluation: Evaluation,
    mistakes: Mistakes,
    images: Sequence[Path],
    folder: Path,
    origin: Mapping[str, Any],
    differences: Sequence[Difference] = (),
) -> list[Path]:
    """Write report.html, report.md with its pictures, and evaluation.json into a folder.

    `origin` describes what was scored, field to value: the data, and the results file or the model with its settings.
    `differences` come from a comparison with other detections.
    """
    plots = _plots(evaluation)
    worst, absent = _worst(mistakes, images)
    notes = [*evaluation.notes, *_class_notes(origin)]
    notes += [f"{path}: not shown, the image file is missing" for path in absent]
    if not plots:
        notes.append("no plots: matplotlib is missing; pip install 'vgtok[evaluate]'")
    report = _Report(
        title=f"{evaluation.data} by protocol {evaluation.protocol.name}",
        protocol=evaluation.protocol.title,
        facts=facts(evaluation),
        worst_note=_worst_note(mistakes),
        tables=[
            _origin_table(origin),
            *_tables(evaluation),
            *([_comparison_table(differences)] if differences else []),
        ],
        plots=plots,
        worst=worst,
        notes=notes,
    )
    for picture in (*plots, *worst):
        write_bytes(folder / picture.file, picture.data)
    write_text(folder / "report.html", report.html())
    write_text(folder / "report.md", report.markdown())
    write_text(folder / "evaluation.json", json.dumps({**evaluation.to_dict(), **origin}, indent=1) + "\n")
    names = ("report.html", "report.md", "evaluation.json", *(picture.file for picture in (*plots, *worst)))
    return [folder / name for name in names]


def _origin_table(origin: Mapping[str, Any]) -> _Table:
    single = {name: value for name, value in origin.items() if not isinstance(value, list | tuple)}
    text = {name: _origin_text(value) for name, value in single.items()}
    return _Table("What was scored", ("", "value"), [[name.replace("_", " "), value] for name, value in text.items()])


def _origin_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return map_text(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _comparison_table(differences: Sequence[Difference]) -> _Table:
    rows = [
        [
            one.metric,
            _points(one.value),
            _points(one.other),
            f"{one.difference:+.2f}",
            f"{one.low:+.2f} to {one.high:+.2f}",
            one.verdict,
        ]
        for one in differences
    ]
    return _Table("Comparison", ("", "this", "other", "difference", "95% interval", "verdict"), rows)


def _class_notes(origin: Mapping[str, Any]) -> list[str]:
    labels = {"unused_classes": "not in the data", "missing_classes": "not known to the model"}
    return [f"classes {label}: {', '.join(origin[name])}" for name, label in labels.items() if origin.get(name)]


def _tables(evaluation: Evaluation) -> list[_Table]:
    bands = evaluation.protocol.bands
    rows = [_points_of(evaluation.metrics), [f"{evaluation.instances:,}", "", ""]]
    rows[1] += [f"{evaluation.band_boxes[name]:,}" for name in bands]
    headline = _Table(
        "Average precision",
        ("", *evaluation.metrics),
        [["points", *rows[0]], ["scored boxes", *rows[1]]],
    )
    tables = [headline, _Table("By class", _CLASS_COLUMNS, [_class_row(result) for result in evaluation.classes])]
    if evaluation.band_classes:
        heading = f"By class, {evaluation.protocol.class_band} alone"
        tables.append(_Table(heading, _CLASS_COLUMNS, [_class_row(result) for result in evaluation.band_classes]))
    return tables


_CLASS_COLUMNS = ("class", "boxes", "AP", "AP50", "share of the mean")


def _points_of(metrics: Mapping[str, float | None]) -> list[str]:
    return [_points(value) for value in metrics.values()]


def _class_row(result: ClassResult) -> list[str]:
    share = "-" if result.share is None else f"{result.share:.3f}"
    return [result.name, f"{result.boxes:,}", _points(result.ap), _points(result.ap50), share]


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _plots(evaluation: Evaluation) -> list[_Picture]:
    drawn = {
        "precision-recall.png": (draw_precision_recall, "Precision over recall, mean over classes."),
        "classes.png": (draw_classes, "AP and AP50 by class."),
    }
    pictures = []
    for file, (draw, caption) in drawn.items():
        data = render_plot(partial(draw, evaluation=evaluation))
        if data is not None:
            pictures.append(_Picture(file, data, caption))
    return pictures


def _worst(mistakes: Mistakes, images: Sequence[Path]) -> tuple[list[_Picture], list[Path]]:
    pictures: list[_Picture] = []
    absent = []
    for index in mistakes.worst(WORST):
        if not images[index].is_file():
            absent.append(images[index])
            continue
        buffer = io.BytesIO()
        draw_mistakes(mistakes, index, images[index]).save(buffer, "JPEG", quality=88)
        found = int((mistakes.truth.image[mistakes.found] == index).sum())
        caption = f"{images[index].name}: {found} found, {mistakes.missed[index]} missed, {mistakes.false[index]} false"
        pictures.append(_Picture(f"worst-{len(pictures) + 1}.jpg", buffer.getvalue(), caption))
    return pictures, absent


def facts(evaluation: Evaluation) -> str:
    """Return the sentence that accompanies every AP: its cap and its counts."""
    return (
        f"At most {evaluation.max_detections} detections per class and image, {evaluation.images:,} images, "
        f"{evaluation.instances:,} scored boxes, {evaluation.detections:,} detections of which "
        f"{evaluation.ignored:,} ignored"
    )


def _worst_note(mistakes: Mistakes) -> str:
    return (
        f"Most mistakes at IoU 0.5 among detections of score {mistakes.threshold:.3f} or more, the threshold of the "
        "best F1 over the whole set."
    )


def _figure(picture: _Picture) -> str:
    kind = "png" if picture.file.endswith(".png") else "jpeg"
    data = base64.b64encode(picture.data).decode()
    caption = escape(picture.caption)
    return (
        f"<figure><img alt='{caption}' src='data:image/{kind};base64,{data}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _markdown_picture(picture: _Picture) -> str:
    return f"![{markdown_text(picture.caption)}]({picture.file})"
