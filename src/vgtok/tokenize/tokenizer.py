"""The tokenizer: an image in, a strict partition at the budget out; and tokenizers by name."""

from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.canvas import Canvas, CanvasSize, check_size, fit_canvas
from vgtok.tokenize.count import exact_single_pass, exact_splits, target_count
from vgtok.tokenize.geometry import CanvasPixels, Extent, Pyramid
from vgtok.tokenize.images import ImageLike, read_image
from vgtok.tokenize.scores import SCORES, Scorer
from vgtok.tokenize.split import (
    GATES,
    Gate,
    Nodes,
    Structure,
    busy_nodes,
    gated_splits,
    single_pass,
    single_pass_percentile,
)
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

if TYPE_CHECKING:
    import torch

    from vgtok.tokenize.retention import RetentionTable


_Choice = TypeVar("_Choice")

SHIPPED_RANK = 0.20
"""Share of busy nodes the gate stops: the paper's one setting, the same on every data set."""


@dataclass(frozen=True)
class Tokenizer:
    """Decides from pixels alone how finely each region is read.

    Give either `budget`, the share of the dense 16-px grid every image gets to the token, or `percentile`, the paper's
    threshold on the image's own scores. `rank` is the share of busy nodes the gate stops (0: no gate). `scorer`,
    `gate` and `splitter` are names, or for the first two a function of your own. `canvas` is the frame to fit inside.

    >>> tokens = Tokenizer(budget=0.40)("frame.png")          # doctest: +SKIP
    >>> tokens.retained                                        # doctest: +SKIP
    0.4000651041666667
    """

    budget: float | None = None
    percentile: float | None = None
    rank: float = SHIPPED_RANK
    scorer: str | Scorer = "tophat"
    splitter: Literal["quadtree", "single_pass"] = "quadtree"
    gate: str | Gate = "lambda_min"
    canvas: CanvasSize = DEFAULT_CANVAS

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.percentile is None):
            raise InputError("Tokenizer: give either budget= (share of tokens) or percentile= (threshold)")
        for name in ("budget", "percentile", "rank"):
            if getattr(self, name) is not None or name == "rank":
                _check_number(name, getattr(self, name))
        if self.percentile is not None and not 0.0 <= self.percentile <= 100.0:
            raise InputError(f"percentile: {self.percentile} is not between 0 and 100")
        if not 0.0 <= self.rank < 1.0:
            raise InputError(f"rank: {self.rank} is not from 0 (no gate) to below 1")
        _named(SCORES, self.scorer, "scorer")
        _named(GATES, self.gate, "gate")
        if not isinstance(self.splitter, str) or self.splitter not in ("quadtree", "single_pass"):
            raise InputError(f"splitter: '{self.splitter}' is not one of quadtree, single_pass")
        check_size(self.canvas)
        floor = (1 / 16) if self.splitter == "quadtree" else (1 / 4)
        if self.budget is not None and not floor <= self.budget <= 1.0:
            raise BudgetError(
                f"budget: {self.budget} is outside {floor:g} to 1, what splitter '{self.splitter}' reaches as a share "
                "of the dense grid"
            )
        if self.scorer == "upsample_mse" and self.splitter == "quadtree" and self.budget is not None:
            raise BudgetError(
                "scorer: 'upsample_mse' is zero on the finest grid, so a quadtree cannot hold it to a budget; "
                "use splitter='single_pass'"
            )

    @classmethod
    def calibrated(cls, table: "str | Path | RetentionTable", budget: float, **settings: Any) -> "Tokenizer":
        """The percentile tokenizer whose mean over a table's images is `budget`.

        `table` is the name of a shipped table, a file of your own, or a loaded table. Further settings are those of the
        class; the canvas is the table's unless you give one. A quadtree must be read as it was measured: scorer and
        rank among the table's curves, its gate, its canvas. Single-pass needs no measurement: its share follows from
        the percentile.
        """
        from vgtok.tokenize.retention import RetentionTable, load_table

        loaded = table if isinstance(table, RetentionTable) else load_table(table)
        _check_number("budget", budget)
        if loaded.canvas is not None:
            settings.setdefault("canvas", loaded.canvas)
        reading = cls(percentile=0.0, **settings)
        if reading.splitter == "single_pass":
            return replace(reading, percentile=single_pass_percentile(budget))
        if not isinstance(reading.scorer, str):
            raise InputError("scorer: a retention table knows scorers by name; give one of your own budget= instead")
        loaded.check_reading(reading.gate if reading.gated else None, reading.canvas)
        return replace(reading, percentile=loaded.curve(reading.scorer, reading.rank).percentile_for(budget))

    def __call__(self, image: ImageLike, *, value_range: tuple[float, float] | None = None) -> Tokens:
        """Tokenize a path, bytes, PIL image, (H, W, 3) array or (3, H, W) tensor."""
        return self.partition(self.to_canvas(image, value_range=value_range))

    def to_canvas(self, image: ImageLike, *, value_range: tuple[float, float] | None = None) -> Canvas:
        """Read the image and put it on the canvas this tokenizer works on."""
        return fit_canvas(read_image(image, value_range), self.canvas)

    def partition(self, canvas: Canvas) -> Tokens:
        """Partition a canvas that `to_canvas` made."""
        pixels = CanvasPixels(canvas.image)
        splits = self.split(self.score(pixels), self.structure(pixels), pixels.extent)
        return tokens_from_splits(splits, pixels.extent, (canvas.source_height, canvas.source_width))

    def score(self, pixels: CanvasPixels) -> Pyramid:
        """What the scorer sees in a frame, per node."""
        return _named(SCORES, self.scorer, "scorer")(pixels)

    def structure(self, pixels: CanvasPixels) -> Structure | None:
        """What the gate sees in a frame, per node; nothing where there is no gate."""
        return _named(GATES, self.gate, "gate")(pixels) if self.gated else None

    def batch(self, images: "torch.Tensor") -> list[Tokens]:
        """Partition a (B, 3, H, W) uint8 tensor as it is, on the device it lives on; no resizing.

        The partitions are those of `partition` on the same pixels, bit for bit.
        """
        from vgtok.tokenize.accelerated import partition_batch

        return partition_batch(self, images)

    @property
    def gated(self) -> bool:
        """Whether a gate statistic is read at all."""
        return self.splitter == "quadtree" and self.rank > 0

    def split(self, scores: Pyramid, structure: Structure | None, extent: Extent) -> Nodes:
        """The splits for given scores and gate statistic: the part that is the same on every device."""
        if self.budget is not None:
            levels = 3 if self.splitter == "quadtree" else 2
            target = target_count(self.budget, extent, levels=levels)
            if self.splitter == "quadtree":
                return exact_splits(scores, structure, extent, target, self.rank if structure else 0.0)
            return exact_single_pass(scores, extent, target)
        assert self.percentile is not None
        if self.splitter == "single_pass":
            return single_pass(scores, extent, self.percentile)
        return gated_splits(busy_nodes(scores, extent, self.percentile), structure, self.rank)


def _check_number(argument: str, value: object) -> None:
    if not isinstance(value, Real):
        raise InputError(f"{argument}: {value!r} is not a number")


def _named(registry: dict[str, _Choice], choice: str | _Choice, argument: str) -> _Choice:
    if not isinstance(choice, str):
        if not callable(choice):
            raise InputError(f"{argument}: {choice!r} is neither a function nor one of {', '.join(registry)}")
        return choice
    if choice not in registry:
        raise InputError(f"{argument}: '{choice}' is not one of {', '.join(registry)}")
    return registry[choice]


PRESETS: dict[str, dict[str, Any]] = {
    "single-pass": {"scorer": "tophat", "rank": 0.0, "splitter": "single_pass"},
    "top-hat": {"scorer": "tophat", "rank": 0.0, "splitter": "quadtree"},
    "top-hat+gate": {"scorer": "tophat", "rank": SHIPPED_RANK, "splitter": "quadtree"},
    "compact": {"scorer": "compact", "rank": 0.0, "splitter": "quadtree"},
}
"""Every tokenizer by name."""


def preset(name: str) -> dict[str, Any]:
    """The arguments of the tokenizer of that name."""
    if name not in PRESETS:
        raise InputError(f"tokenizer: '{name}' is not one of {', '.join(PRESETS)}")
    return PRESETS[name]
