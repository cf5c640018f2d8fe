"""Plots of the studies: panels of lines or of horizontal bars in one palette.

Values of rows enter; what leaves is a function that draws them on a matplotlib figure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgtok.show.plot import PALETTE
from vgtok.study.result import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
