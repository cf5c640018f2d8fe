"""A study's plot as PNG bytes, in one look; without matplotlib there is none."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

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
