"""Retention tables: the mean share of tokens each percentile keeps on a data set, shipped or measured by the user."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vgtok.errors import BudgetError, InputError
from vgtok.files import is_there, read_json, write_text
from vgtok.tokenize.canvas import CanvasSize, check_size

_Value = TypeVar("_Value")

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
        """Smallest and largest measured share."""
        return min(self.retained), max(self.retained)

    def percentile_for(self, budget: float) -> float:
        """Return the percentile that keeps `budget` of the dense grid; raise BudgetError if none does."""
        low, high = self.reachable
        if not low <= budget <= high:
            raise BudgetError(
                f"budget: {budget:.4g} cannot be reached by scorer '{self.scorer}' at gate rank {self.rank:g}; "
                f"its percentiles reach {low:.4f} to {high:.4f} of the dense grid"
            )
        # Retention falls as the percentile rises; np.interp needs increasing values.
        return float(np.interp(budget, self.retained[::-1], self.percentiles[::-1]))


@dataclass(frozen=True)
class RetentionTable:
    """Curves measured on one set of images; `measured_on` holds the data set, the number of images and the canvas."""

    name: str
    measured_on: Mapping[str, Any]
    curves: tuple[RetentionCurve, ...]

    @property
    def canvas(self) -> CanvasSize | None:
        """The canvas the images were fitted to; None if the table does not say."""
        canvas = self.measured_on.get("canvas")
        return tuple(canvas) if isinstance(canvas, list) else canvas

    def check_reading(self, gate: object, canvas: CanvasSize) -> None:
        """Raise InputError for a gate or canvas other than those measured; `gate` is None if there is no gate."""
        measured = self.measured_on.get("gate")
        if gate is not None and measured is not None and gate != measured:
            raise InputError(
                f"gate: table '{self.name}' was measured with gate '{measured}'; use that one, or rank=0 for none"
            )
        if self.canvas is not None and _sides(canvas) != _sides(self.canvas):
            raise InputError(
                f"canvas: table '{self.name}' was measured at {_spelled(self.canvas)}, not {_spelled(canvas)}; use "
                "that canvas, or measure a table at yours with 'vgtok calibrate --canvas'"
            )

    def curve(self, scorer: str, rank: float) -> RetentionCurve:
        """Return the curve for a scorer and rank; raise InputError if the table does not hold it."""
        for curve in self.curves:
            if curve.scorer == scorer and abs(curve.rank - rank) < 1e-9:
                return curve
        held = ", ".join(f"{curve.scorer} at {curve.rank:g}" for curve in self.curves)
        raise InputError(f"table '{self.name}': no curve for scorer '{scorer}' at gate rank {rank:g}; it holds {held}")

    def to_document(self) -> dict[str, Any]:
        """Return the table as plain values for JSON."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write the table as JSON, atomically."""
        write_text(path, json.dumps(self.to_document(), indent=1) + "\n")

    @classmethod
    def from_file(cls, path: Path) -> "RetentionTable":
        """Read a table that `save` wrote."""
        return cls.from_document(read_json(path, "retention table"), str(path))

    @classmethod
    def from_document(cls, document: object, origin: str) -> "RetentionTable":
        """Build a table from the values of `to_document`; errors name `origin`."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{origin}: not a retention table; make one with 'vgtok calibrate'")
        if document.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{origin}: retention table of version {document.get('version')}; this release reads {FORMAT_VERSION}"
            )
        try:
            table = cls(
                _of_type(document["name"], str),
                _of_type(document["measured_on"], dict),
                tuple(map(_curve, _of_type(document["curves"], list))),
            )
            check_size(table.canvas or "native")
            return table
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{origin}: damaged retention table ({error!r}); measure it again") from None


def _sides(canvas: CanvasSize) -> object:
    return canvas if isinstance(canvas, str) else sorted(canvas)


def _spelled(canvas: CanvasSize) -> str:
    return canvas if isinstance(canvas, str) else f"{canvas[0]}x{canvas[1]}"


def _curve(document: Any) -> RetentionCurve:
    scorer = _of_type(_of_type(document, dict)["scorer"], str)
    rank, *percentiles = _numbers([document["rank"], *_of_type(document["percentiles"], list)])
    retained = _numbers(_of_type(document["retained"], list))
    if len(percentiles) != len(retained) or len(retained) < 2:
        raise ValueError(f"{len(percentiles)} percentiles with {len(retained)} shares")
    if sorted(set(percentiles)) != percentiles or not 0 <= percentiles[0] <= percentiles[-1] <= 100:
        raise ValueError("percentiles that do not rise from 0 to 100")
    if not all(0 <= share <= 1 for share in (rank, *retained)):
        raise ValueError("a share that is not between 0 and 1")
    return RetentionCurve(scorer, rank, tuple(percentiles), tuple(retained))


def _numbers(values: list[Any]) -> list[float]:
    if not all(type(value) in (int, float) for value in values):
        raise TypeError("something that is not a number among numbers")
    return [float(value) for value in values]


def _of_type(value: Any, kind: type[_Value]) -> _Value:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def shipped_tables() -> dict[str, Path]:
    """Return name and file of every table in the package."""
    folder = Path(str(files("vgtok.tokenize") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def load_table(name_or_path: str | Path) -> RetentionTable:
    """Load a shipped table by name or a table file by path."""
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"table: a {type(name_or_path).__name__} is neither the name of a table nor a file")
    shipped = shipped_tables()
    if str(name_or_path) in shipped:
        return RetentionTable.from_file(shipped[str(name_or_path)])
    path = Path(name_or_path)
    if not is_there(path):
        raise InputError(
            f"table: '{name_or_path}' is neither a file nor a shipped table ({', '.join(shipped) or 'none shipped'})"
        )
    return RetentionTable.from_file(path)
