"""Retention tables: the share of tokens a percentile keeps, measured, and the percentile that keeps a wanted share.

A quadtree's count depends on where the busy nodes sit, so no formula maps a percentile onto a budget. A table holds one
measured curve per scorer and gate rank and is inverted by linear interpolation between its rungs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vgtok.errors import BudgetError, InputError

FORMAT = "vgtok-retention-table"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class RetentionCurve:
    """Mean share of tokens kept at each percentile, for one scorer and one gate rank."""

    scorer: str
    rank: float
    percentiles: tuple[float, ...]
    retained: tuple[float, ...]

    @property
    def reachable(self) -> tuple[float, float]:
        """Smallest and largest share the measured rungs reach."""
        return min(self.retained), max(self.retained)

    def percentile_for(self, budget: float) -> float:
        """The percentile that keeps `budget` of the dense grid, refused outside the reachable range."""
        low, high = self.reachable
        if not low <= budget <= high:
            raise BudgetError(
                f"budget: {budget:.4g} cannot be reached by scorer '{self.scorer}' at gate rank {self.rank:g}; "
                f"its percentiles reach {low:.4f} to {high:.4f} of the dense grid"
            )
        # Retention falls as the percentile rises; interpolation wants rising abscissae.
        return float(np.interp(budget, self.retained[::-1], self.percentiles[::-1]))

    def retained_at(self, percentile: float) -> float:
        """The share kept at a percentile between the first and the last rung."""
        return float(np.interp(percentile, self.percentiles, self.retained))


@dataclass(frozen=True)
class RetentionTable:
    """Curves measured on one set of images; `measured_on` says which, how many and at what canvas."""

    name: str
    measured_on: Mapping[str, Any]
    curves: tuple[RetentionCurve, ...]

    def curve(self, scorer: str, rank: float) -> RetentionCurve:
        """The curve for a scorer and rank, refused with what the table holds."""
        for curve in self.curves:
            if curve.scorer == scorer and abs(curve.rank - rank) < 1e-9:
                return curve
        held = ", ".join(f"{curve.scorer} at {curve.rank:g}" for curve in self.curves)
        raise InputError(f"table '{self.name}': no curve for scorer '{scorer}' at gate rank {rank:g}; it holds {held}")

    def to_document(self) -> dict[str, Any]:
        """The table as JSON has it."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write the table as JSON, whole or not at all."""
        from vgtok.files import write_text

        write_text(path, json.dumps(self.to_document(), indent=1) + "\n")

    @classmethod
    def from_file(cls, path: Path) -> "RetentionTable":
        """Read a table that `save` wrote."""
        try:
            document = json.loads(path.read_text())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise InputError(f"{path}: not a retention table ({error})") from None
        return cls.from_document(document, str(path))

    @classmethod
    def from_document(cls, document: object, origin: str) -> "RetentionTable":
        """Read what `to_document` made; `origin` is what errors call it."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{origin}: not a retention table; make one with 'vgtok calibrate'")
        if document.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{origin}: retention table of version {document.get('version')}; this release reads {FORMAT_VERSION}"
            )
        try:
            curves = tuple(
                RetentionCurve(c["scorer"], float(c["rank"]), tuple(c["percentiles"]), tuple(c["retained"]))
                for c in document["curves"]
            )
            return cls(document["name"], document["measured_on"], curves)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{origin}: damaged retention table ({error!r})") from None
