"""Plots, panels of pictures, and the page of results."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from vgtok.errors import InputError
from vgtok.files import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render_plot(draw: "Callable[[Figure], None]") -> bytes | None:
    """Draw on a fresh figure and return it as PNG, or None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    draw(figure)
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


_GAP, _CAPTION = 12, 30

Panel = tuple[str, NDArray[np.uint8]]
"""A caption and an (H, W, 3) RGB picture."""


def panel_rows(rows: Sequence[Sequence[Panel]], width: int) -> Image.Image:
    """Rows of panels, each row scaled to fill `width` px, captions above."""
    strips = [_row(panels, width) for panels in rows]
    height = sum(strip.height for strip in strips) + _GAP * (len(strips) + 1)
    sheet = Image.new("RGB", (width + 2 * _GAP, height), "white")
    top = _GAP
    for strip in strips:
        sheet.paste(strip, (_GAP, top))
        top += strip.height + _GAP
    return sheet


def _row(panels: Sequence[Panel], width: int) -> Image.Image:
    ratios = [picture.shape[1] / picture.shape[0] for _, picture in panels]
    height = round((width - _GAP * (len(panels) - 1)) / sum(ratios))
    strip = Image.new("RGB", (width, height + _CAPTION), "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=18)
    left = 0.0
    for (caption, picture), ratio in zip(panels, ratios, strict=True):
        size = (round(height * ratio), height)
        method = cv2.INTER_AREA if size[0] < picture.shape[1] else cv2.INTER_CUBIC
        strip.paste(Image.fromarray(cv2.resize(picture, size, interpolation=method)), (round(left), _CAPTION))
        draw.text((round(left), 4), caption, fill="black", font=font)
        left += size[0] + _GAP
    return strip


def heat_map(values: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """A (rows, columns) grid as colours over `shape` (height, width) px, its 99th percentile at full scale."""
    top = max(float(np.percentile(values, 99)), 1e-12)
    levels = np.clip(values / top * 255, 0, 255).astype(np.uint8)
    enlarged = cv2.resize(levels, shape[::-1], interpolation=cv2.INTER_NEAREST)
    return np.asarray(
        cv2.cvtColor(cv2.applyColorMap(enlarged, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB), dtype=np.uint8
    )


def boxed(picture: NDArray[np.uint8], boxes: NDArray[np.float64], colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A copy of the picture with (N, 4) boxes drawn on it."""
    drawn = picture.copy()
    thickness = max(1, picture.shape[1] // 900)
    for x0, y0, x1, y1 in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(drawn, (x0, y0), (x1, y1), colour, thickness)
    return drawn


_OF_A_STUDY = {"title", "data", "images", "ran_at", "vgtok", "rows", "notes"}


def results_page(folder: Path) -> str:
    """The page for the `*.json` files of a folder, studies first, then benchmarks; other files are left out."""
    found = {path.stem: _document(path) for path in sorted(folder.glob("*.json"))}
    documents = {name: document for name, document in found.items() if document is not None}
    studies = {name: document for name, document in documents.items() if "study" in document}
    benchmarks = {name: document for name, document in documents.items() if "study" not in document}
    parts = [
        "# Results",
        "Written by `vgtok study NAME` and `vgtok bench NAME`; figures of the paper stand beside the measured ones. "
        "The numbers in full are in the JSON and CSV files beside this page.",
        *(_study(name, document, folder) for name, document in studies.items()),
        *(_benchmark(name, document) for name, document in benchmarks.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _document(path: Path) -> dict[str, Any] | None:
    """The results in a file; None where it is damaged or holds something else."""
    try:
        document = read_json(path)
    except InputError:
        return None
    if not isinstance(document, dict) or ("study" in document and not document.keys() >= _OF_A_STUDY):
        return None
    rows = document.get("rows", [{}])
    whole = (
        isinstance(rows, list) and rows and all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)
    )
    return document if document and whole else None


def _study(name: str, document: Mapping[str, Any], folder: Path) -> str:
    data = f"{document['data']}, {document['images']} images, " if document["data"] else ""
    lines = [
        f"## {name}",
        f"{document['title']} ({data}{document['ran_at'][:10]}, vgtok {document['vgtok']}).",
        _table(document["rows"]),
        "\n".join(f"- {note}" for note in document["notes"]),
    ]
    if (folder / f"{name}.png").exists():
        lines.append(f"![{document['title']}]({name}.png)")
    return "\n\n".join(line for line in lines if line)


def _benchmark(name: str, document: Mapping[str, Any]) -> str:
    single = [{"quantity": key, "value": value} for key, value in document.items() if key != "rows"]
    tables = [_table(single), *([_table(document["rows"])] if "rows" in document else [])]
    return "\n\n".join([f"## {name}", *tables])


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(rows[0])
    head = "| " + " | ".join(column.replace("_", " ") for column in columns) + " |"
    rule = "|" + "---|" * len(columns)
    body = ["| " + " | ".join(_cell(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join([head, rule, *body])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
