"""What a study takes and returns: inputs, rows beside the paper's figures, and plots."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vgtok.data.dataset import Dataset
from vgtok.defaults import DEFAULT_CANVAS, DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.parallel import Mapper, map_with_progress
from vgtok.runs import RUNS
from vgtok.show.plot import PALETTE
from vgtok.tokenize.canvas import CanvasSize

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Row = Mapping[str, Any]


Draw = Callable[["Figure"], None]


@dataclass(frozen=True)
class Line:
    """Points (x, y) in one `style`; `color` is an index into PALETTE or a gray, `errors` the bars below and above y."""

    x: Sequence[Any]
    y: Sequence[Any]
    label: str | None = None
    color: int | str = 0
    style: str = "o-"
    errors: Any = None
    looks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """Lines on one pair of axes; `axes` are arguments of `axes.set`, `levels` dashed horizontal lines by label."""

    lines: Sequence[Line]
    axes: Mapping[str, Any]
    levels: Mapping[str, float] = field(default_factory=dict)


def lines_by(rows: Sequence[Row], key: str, names: Sequence[str], x: str, y: str, style: str = "o-") -> list[Line]:
    """Return one line of columns `x` and `y` for each of the `names` in column `key`."""
    return [
        Line([row[x] for row in rows if row[key] == name], [row[y] for row in rows if row[key] == name], name, i, style)
        for i, name in enumerate(names)
    ]


def line_plot(*panels: Panel, sharey: bool = False) -> Draw:
    """Draw panels of lines side by side; the first has the legend."""

    def draw(figure: "Figure") -> None:
        for axes, panel in zip(figure.subplots(1, len(panels), sharey=sharey, squeeze=False)[0], panels, strict=True):
            for line in panel.lines:
                draw_line(axes, line)
            for label, level in panel.levels.items():
                axes.axhline(level, color="0.4", linewidth=1, linestyle="--", label=label or None)
            axes.set(**panel.axes)
        if figure.axes[0].get_legend_handles_labels()[1]:
            figure.axes[0].legend(fontsize=8)

    return draw


def draw_line(axes: Any, line: Line) -> None:
    """Draw one line on matplotlib axes."""
    color = PALETTE[line.color % len(PALETTE)] if isinstance(line.color, int) else line.color
    axes.errorbar(
        line.x, line.y, line.errors, fmt=line.style, color=color, label=line.label, **{"capsize": 3, **line.looks}
    )


@dataclass(frozen=True)
class Bars:
    """Groups of bars: each series of `values`, by label, has a value for every name of the plot.

    The bars of a name lie below each other, or in one line if `stacked`. `marks` are crosses beside the bars of a
    series, `levels` dashed vertical lines by label.
    """

    values: Mapping[str, Sequence[float]]
    axes: Mapping[str, Any]
    marks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    colors: Sequence[str] = PALETTE
    stacked: bool = False


def bar_plot(names: Sequence[str], *panels: Bars) -> Draw:
    """Draw panels of horizontal bars side by side, grouped by name, the first name on top; the first has the legend."""

    def draw(figure: "Figure") -> None:
        for axes, panel in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            height = 0.8 if panel.stacked else 0.8 / len(panel.values)
            left = [0.0] * len(names)
            for number, (label, values) in enumerate(panel.values.items()):
                shift = 0.0 if panel.stacked else (number - (len(panel.values) - 1) / 2) * height
                places = [place + shift for place in range(len(names))]
                axes.barh(places, values, 0.94 * height, left=left, color=panel.colors[number], label=label)
                if panel.stacked:
                    left = [before + value for before, value in zip(left, values, strict=True)]
                if label in panel.marks:
                    axes.plot(panel.marks[label], places, "x", color="0.15", label=None if number else "paper")
            for label, level in panel.levels.items():
                axes.axvline(level, color="0.25", linewidth=1, linestyle="--", label=label or None)
            axes.set(**panel.axes)
        figure.axes[0].set_yticks(range(len(names)), names, fontsize=7)
        figure.axes[0].invert_yaxis()
        if len(figure.axes[0].get_legend_handles_labels()[1]) > 1:
            figure.axes[0].legend(fontsize=8)

    return draw


Table = TypeVar("Table")
Item = TypeVar("Item")
Mapped = TypeVar("Mapped")

CANVASES: dict[str, CanvasSize] = {"aitodv2": (2048, 2048)}
"""The canvas the paper uses for a data set, if it is not the default."""

DEIT_WEIGHTS = "deit_tiny_patch16_224.safetensors"
"""The ImageNet checkpoint whose packed features are compared with its dense ones."""


@dataclass(frozen=True)
class Inputs:
    """What a study runs on: a data set, a number of processes and, for the figures, the image to show (`frame`).

    Results are written to `out`, where long studies also keep what they need to resume. Accuracy studies run `models`
    with `head` (default: each model's own; some can run both) on at most `limit` evenly spread images, on `device` in
    `dtype`; for other studies the command takes so many of the data set. `class_map` has classes of other models as
    `--map` spells them. `mapper` is what maps over images in place of `workers` processes of this machine. `source` is
    the data set as `--data` spells it, for studies that train on it.
    """

    dataset: Dataset | None
    workers: int
    frame: str | None = None
    out: Path = RUNS / "study"
    models: tuple[str, ...] = ()
    limit: int | None = None
    head: Literal["query", "atss", "both"] | None = None
    device: str = "auto"
    dtype: str = "float32"
    class_map: tuple[str, ...] = ()
    mapper: Mapper | None = None
    source: str | None = None

    def map(self, function: Callable[[Item], Mapped], items: Sequence[Item], label: str) -> Iterator[Mapped]:
        """Yield `function(item)` for every item in order: by the mapper if there is one, else by processes here."""
        if self.mapper is not None:
            return self.mapper(function, items, label=label)
        return map_with_progress(function, items, workers=self.workers, label=label)

    @property
    def model(self) -> str:
        """The one model of the study, by default the shipped one; raise InputError if several were named."""
        if len(self.models) > 1:
            raise InputError(f"--model: this study runs one model, not {len(self.models)}")
        return self.models[0] if self.models else DEFAULT_MODEL

    @property
    def data(self) -> Dataset:
        """The data set; raise InputError if there is none."""
        if self.dataset is None:
            raise InputError("--data: this study needs a data set, e.g. --data visdrone:DIR")
        return self.dataset

    @property
    def annotated(self) -> Dataset:
        """The data set; raise InputError if it has no boxes."""
        if not self.data.names:
            raise InputError("--data: this study needs annotated images, e.g. --data visdrone:DIR")
        return self.data

    def printed_for(self, tables: Collection[str]) -> str:
        """Return the name of the data set; raise InputError if the paper prints no such table for it."""
        name = self.annotated.name
        if name not in tables:
            raise InputError(f"--data: the paper prints this table for {' and '.join(tables)}, not for '{name}'")
        return name

    def read_all(self) -> "Read":
        """Describe a study that read every image of the data set."""
        return Read(self.data.name, len(self.data.images))

    @property
    def canvas(self) -> CanvasSize:
        """The canvas the paper uses for this data set."""
        return CANVASES.get(self.data.name, DEFAULT_CANVAS)


RENDERED = "rendered scenes"
"""The name of rendered images in results."""


@dataclass(frozen=True)
class Read:
    """What a study measured on: the name of the data and the number of images read."""

    data: str
    images: int


@dataclass(frozen=True)
class Result:
    """Rows of one table, measured values beside the paper's.

    `read` is what they were measured on, None if no image was read. `paper_only` holds rows for data that was not
    given, with what they need. `notes` are printed below the table. `plot` draws it, or `pictures` are named RGB images
    instead of a plot. `also` adds fields to the JSON.
    """

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    paper_only: Sequence[Row] = ()
    plot: "Callable[[Figure], None] | None" = None
    pictures: Mapping[str, Any] = field(default_factory=dict)
    also: Mapping[str, Any] = field(default_factory=dict)
    read: Read | None = field(kw_only=True)


Option = Literal["data", "frame", "model", "limit", "head", "device", "dtype", "map"]

DETECTS: tuple[Option, ...] = ("data", "model", "limit", "head", "device", "dtype")
"""The options of a study that runs a detector over a data set."""


@dataclass(frozen=True)
class Study:
    """A command of `vgtok study`; `takes` names its options, others are refused.

    `keeps` is False for one that leaves nothing to resume from though it runs a model. `frames` is the number of images
    `vgtok study all` gives it [default: all]; 0 leaves it out. `both_heads` is True for one that can run two heads.
    """

    name: str
    title: str
    run: Callable[[Inputs], Result]
    takes: tuple[Option, ...] = ("data", "limit")
    keeps: bool = True
    frames: int | None = None
    both_heads: bool = False

    @property
    def resumes(self) -> bool:
        """Whether an interrupted run leaves something to go on from: detections, or training runs on scenes."""
        return self.keeps and ("model" in self.takes or "data" not in self.takes)


@dataclass(frozen=True)
class ImageJob:
    """One image of a study: its data set, index and file, and its boxes (N, 4) in image pixels."""

    data: str
    index: int
    path: Path
    boxes: Any
    canvas: CanvasSize


def image_jobs(inputs: Inputs, count: int | None = None) -> list[ImageJob]:
    """Return a job for each of the first `count` images in file order, with boxes if the data set has them."""
    dataset = inputs.data
    chosen = range(len(dataset.images) if count is None else min(count, len(dataset.images)))
    return [
        ImageJob(
            dataset.name,
            i,
            dataset.images[i],
            dataset.annotations(i).boxes if dataset.names else None,
            inputs.canvas,
        )
        for i in chosen
    ]


def paired(measured: Mapping[str, Any], printed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `measured`, each after its `paper_` twin where `printed` has the name."""
    row: dict[str, Any] = {}
    for name, value in measured.items():
        if name in printed:
            row[f"paper_{name}"] = printed[name]
        row[name] = value
    return row


def paper_only(
    tables: Mapping[str, Table], measured: str, rows: Callable[[Table], Iterable[Mapping[str, Any]]]
) -> list[Row]:
    """Return the paper's rows for every data set but the measured one, each with the data it needs as its status."""
    return [
        {**row, "status": f"needs {name}"} for name, table in tables.items() if name != measured for row in rows(table)
    ]
