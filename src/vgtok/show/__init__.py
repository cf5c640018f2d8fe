"""Pictures, plots and reports."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.show.overlay import draw_detections, draw_tokens
    from vgtok.show.plot import panel_rows, render_plot, results_page
    from vgtok.show.report import draw_mistakes, write_report

__all__ = [
    "draw_detections",
    "draw_mistakes",
    "draw_tokens",
    "panel_rows",
    "render_plot",
    "results_page",
    "write_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "overlay": ["draw_detections", "draw_tokens"],
        "plot": ["panel_rows", "render_plot", "results_page"],
        "report": ["draw_mistakes", "write_report"],
    },
)
