"""Layouts: each draws one kind of place on a stage."""

from __future__ import annotations

from collections.abc import Callable

from ..stage import Stage
from .harbour import lay_harbour
from .highway import lay_highway
from .parking import lay_parking
from .street import lay_street
from .village import lay_village

LAYOUT_BUILDERS: dict[str, Callable[[Stage], None]] = {
    "street": lay_street,
    "highway": lay_highway,
    "parking": lay_parking,
    "village": lay_village,
    "harbour": lay_harbour,
}
"""Every layout by name."""

__all__ = ["LAYOUT_BUILDERS"]
