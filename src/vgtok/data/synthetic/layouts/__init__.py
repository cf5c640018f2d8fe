"""Layouts: each draws one kind of place on a stage."""

from __future__ import annotations

from collections.abc import Callable

from vgtok.data.synthetic.layouts.country import lay_highway, lay_village
from vgtok.data.synthetic.layouts.harbour import lay_harbour
from vgtok.data.synthetic.layouts.town import lay_parking, lay_street
from vgtok.data.synthetic.stage import Stage

LAYOUT_BUILDERS: dict[str, Callable[[Stage], None]] = {
    "street": lay_street,
    "highway": lay_highway,
    "parking": lay_parking,
    "village": lay_village,
    "harbour": lay_harbour,
}
"""Every layout by name."""

__all__ = ["LAYOUT_BUILDERS"]
