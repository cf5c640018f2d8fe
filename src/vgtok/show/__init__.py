"""Pictures, plots, tables and reports."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.show.boxes import class_color, draw_detections, side_by_side
    from vgtok.show.overlay import draw_tokens
    from vgtok.show.plot import PALETTE, panel_rows, render_plot
    from vgtok.show.report import draw_mistakes, write_report
    from vgtok.show.tables import html_table, markdown_table, results_page

__all__ = [
    "PALETTE",
    "class_color",
    "draw_detections",
    "draw_mistakes",
    "draw_tokens",
    "html_table",
    "markdown_table",
    "panel_rows",
    "render_plot",
    "results_page",
    "side_by_side",
    "write_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "boxes": ["class_color", "draw_detections", "side_by_side"],
        "overlay": ["draw_tokens"],
        "plot": ["PALETTE", "panel_rows", "render_plot"],
        "report": ["draw_mistakes", "write_report"],
        "tables": ["html_table", "markdown_table", "results_page"],
    },
)
