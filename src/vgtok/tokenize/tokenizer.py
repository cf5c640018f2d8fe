"""The tokenizer: an image enters, its partition into tokens at a budget leaves; also tokenizers by name."""

from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

import numpy as np

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import BudgetError, InputError
from vgtok.tokenize.canvas import Canvas, CanvasSize, ImageLike, check_size, fit_canvas, read_image, reflect_padding
from vgtok.tokenize.count import exact_single_pass, exact_splits, target_count
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, Extent, Pyramid
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
    single_pass_strict,
)
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

if TYPE_CHECKING:
    import torch

    from vgtok.tokenize.retention import RetentionTable


_Choice = TypeVar("_Choice")

Splitter = Literal["quadtree", "single_pass", "single_pass_strict"]
Padding = Literal["empty", "reflect"]

SHIPPED_RANK = 0.20
"""Share of busy nodes the gate stops, as in the paper on all data sets."""


@dataclass(frozen=True)
class Tokenizer:
    """Choose from the pixels alone how finely each region of an image is read.

    Give either `budget`, the exact share of the dense 16-px grid each image keeps, or `percentile`, the paper's
    threshold on the scores of the image. `rank` is the share of busy nodes the gate stops (0: no gate). `scorer`,
    `gate` and `splitter` are names; the first two may also be functions. `canvas` is the size images are fitted to;
    its padding to whole 64-px roots is `empty` and holds no tokens, or shows the image mirrored and counts.

    >>> tokens = Tokenizer(budget=0.40)("image.png")          # doctest: +SKIP
    >>> tokens.retained                                        # doctest: +SKIP
    0.4000651041666667
    """

    budget: float | None = None
    percentile: float | None = None
    rank: float = SHIPPED_RANK
    scorer: str | Scorer = "tophat"
    splitter: Splitter = "quadtree"
    gate: str | Gate = "lambda_min"
    canvas: CanvasSize = DEFAULT_CANVAS
    padding: Padding = "empty"

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
        for name, kinds in (("splitter", get_args(Splitter)), ("padding", get_args(Padding))):
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in kinds:
                raise InputError(f"{name}: '{getattr(self, name)}' is not one of {', '.join(kinds)}")
        if self.splitter == "single_pass_strict" and self.budget is not None:
            raise BudgetError(
                "splitter: 'single_pass_strict' keeps more where scores are equal and so holds no exact budget; use "
                "percentile=, Tokenizer.calibrated or splitter='single_pass'"
            )
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
        """Return the percentile tokenizer that keeps `budget` on average over the images of a table.

        `table` is the name of a shipped table, a file, or a loaded table. Further settings are those of the class; the
        canvas defaults to that of the table. A quadtree needs the settings that were measured: scorer and rank of one
        of the table's curves, its gate and its canvas. Single-pass needs no measurement, as its share follows from the
        percentile.
        """
        from vgtok.tokenize.retention import RetentionTable, load_table

        loaded = table if isinstance(table, RetentionTable) else load_table(table)
        _check_number("budget", budget)
        if loaded.canvas is not None:
            settings.setdefault("canvas", loaded.canvas)
        reading = cls(percentile=0.0, **settings)
        if reading.splitter != "quadtree":
            return replace(reading, percentile=single_pass_percentile(budget))
        if not isinstance(reading.scorer, str):
            raise InputError("scorer: a retention table knows scorers by name; give one of your own budget= instead")
        loaded.check_reading(reading.gate if reading.gated else None, reading.canvas)
        return replace(reading, percentile=loaded.curve(reading.scorer, reading.rank).percentile_for(budget))

    @classmethod
    def paper(cls, percentile: float, **settings: Any) -> "Tokenizer":
        """Return a tokenizer with the readings that give the figures the paper prints; the class has better ones.

        They are float32 luma, lambda_min by a 5 px Sobel and a 33 px window, padding that mirrors the image and counts,
        and with `splitter="single_pass_strict"` its rule for equal scores. Further settings are those of the class.

        >>> Tokenizer.paper(74.82).gate
        'lambda_min_auroc'
        """
        return cls(percentile=percentile, **{**PAPER_READING, **settings})

    @overload
    def __call__(
        self,
        images: list[ImageLike] | tuple[ImageLike, ...],
        *,
        value_range: tuple[float, float] | None = None,
    ) -> list[Tokens]: ...

    @overload
    def __call__(self, images: ImageLike, *, value_range: tuple[float, float] | None = None) -> Tokens: ...

    def __call__(self, images: Any, *, value_range: tuple[float, float] | None = None) -> Tokens | list[Tokens]:
        """Tokenize a path, bytes, PIL image, (H, W, 3) array or (3, H, W) tensor, or each of a list of them.

        `value_range` as in `read_image`.
        """
        if isinstance(images, list | tuple):
            return [self.partition(self.to_canvas(image, value_range=value_range)) for image in images]
        return self.partition(self.to_canvas(images, value_range=value_range))

    def to_canvas(self, image: ImageLike, *, value_range: tuple[float, float] | None = None) -> Canvas:
        """Read an image, fit it to the canvas and pad it."""
        return self.pad(fit_canvas(read_image(image, value_range), self.canvas))

    def pad(self, canvas: Canvas) -> Canvas:
        """Return a fitted canvas with the tokenizer's padding."""
        return reflect_padding(canvas) if self.padding == "reflect" else canvas

    def partition(self, canvas: Canvas) -> Tokens:
        """Partition a canvas made by `to_canvas`."""
        pixels = CanvasPixels(canvas.image)
        splits = self.split(self.score(pixels), self.structure(pixels), pixels.extent)
        return tokens_from_splits(splits, pixels.extent, canvas.source_size)

    def score(self, pixels: CanvasPixels) -> Pyramid:
        """Return the score of every cell, node and root."""
        scores = _named(SCORES, self.scorer, "scorer")(pixels)
        if not isinstance(self.scorer, str):
            _check_grids("scorer", scores, Pyramid, (CELL, NODE, ROOT), pixels.extent)
        return scores

    def structure(self, pixels: CanvasPixels) -> Structure | None:
        """Return the gate statistic of every node and root; None without a gate."""
        if not self.gated:
            return None
        statistic = _named(GATES, self.gate, "gate")(pixels)
        if not isinstance(self.gate, str):
            _check_grids("gate", statistic, Structure, (NODE, ROOT), pixels.extent)
        return statistic

    def batch(self, images: "torch.Tensor") -> list[Tokens]:
        """Partition a (B, 3, H, W) uint8 tensor on its device, without resizing.

        The partitions equal those of `partition` on the same pixels bit for bit.
        """
        from vgtok.tokenize.accelerated import partition_batch

        return partition_batch(self, images)

    @property
    def gated(self) -> bool:
        """Whether a gate is used."""
        return self.splitter == "quadtree" and self.rank > 0

    def split(self, scores: Pyramid, structure: Structure | None, extent: Extent) -> Nodes:
        """Return the splits for given scores and gate statistic; the same code on every device."""
        if self.budget is not None:
            levels = 3 if self.splitter == "quadtree" else 2
            target = target_count(self.budget, extent, levels=levels)
            if self.splitter == "quadtree":
                return exact_splits(scores, structure, extent, target, self.rank if structure else 0.0)
            return exact_single_pass(scores, extent, target)
        assert self.percentile is not None
        if self.splitter == "single_pass":
            return single_pass(scores, extent, self.percentile)
        if self.splitter == "single_pass_strict":
            return single_pass_strict(scores, extent, self.percentile)
        return gated_splits(busy_nodes(scores, extent, self.percentile), structure, self.rank)


def _check_number(argument: str, value: object) -> None:
    if not isinstance(value, Real):
        raise InputError(f"{argument}: {value!r} is not a number")


def _check_grids(
    argument: str, returned: object, kind: type[Pyramid] | type[Structure], sizes: tuple[int, ...], extent: Extent
) -> None:
    """Refuse what a function of the caller returned unless it is one grid of finite numbers per patch size."""
    grids = zip(kind._fields, map(extent.grid_shape, sizes), strict=True)
    expected = f"vgtok.tokenize.{kind.__name__}({', '.join(f'{name} {shape}' for name, shape in grids)})"
    if not isinstance(returned, kind):
        shape = f" of shape {returned.shape}" if isinstance(returned, np.ndarray) else ""
        raise InputError(f"{argument}: returned a {type(returned).__name__}{shape}, not a {expected}")
    for name, grid, size in zip(kind._fields, returned, sizes, strict=True):
        if not isinstance(grid, np.ndarray) or grid.shape != extent.grid_shape(size) or grid.dtype.kind not in "fiu":
            shown = f"{grid.dtype} array {grid.shape}" if isinstance(grid, np.ndarray) else type(grid).__name__
            raise InputError(f"{argument}: returned '{name}' as {shown}; it must be numbers, as in {expected}")
        if not np.isfinite(grid).all():
            raise InputError(f"{argument}: returned NaN or infinity in '{name}'; every patch needs a finite number")


def _named(registry: dict[str, _Choice], choice: str | _Choice, argument: str) -> _Choice:
    if not isinstance(choice, str):
        if not callable(choice):
            raise InputError(f"{argument}: {choice!r} is neither a function nor one of {', '.join(registry)}")
        return choice
    if choice not in registry:
        raise InputError(f"{argument}: '{choice}' is not one of {', '.join(registry)}")
    return registry[choice]


def usual_rank(scorer: str | Scorer) -> float:
    """Return the gate rank that goes with a score: none with `compact`, which weighs what the gate looks at."""
    return 0.0 if scorer == "compact" else SHIPPED_RANK


PAPER_READING: dict[str, Any] = {"scorer": "tophat_float32", "gate": "lambda_min_auroc", "padding": "reflect"}
"""Settings of `Tokenizer.paper`."""

PRESETS: dict[str, dict[str, Any]] = {
    "single-pass": {"scorer": "tophat", "rank": 0.0, "splitter": "single_pass"},
    "top-hat": {"scorer": "tophat", "rank": 0.0, "splitter": "quadtree"},
    "top-hat+gate": {"scorer": "tophat", "rank": SHIPPED_RANK, "splitter": "quadtree"},
    "compact": {"scorer": "compact", "rank": 0.0, "splitter": "quadtree"},
}
"""Settings of each tokenizer by name."""


def preset(name: str) -> dict[str, Any]:
    """Return the settings of the tokenizer of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"tokenizer: '{name}' is not one of {', '.join(PRESETS)}")
    return PRESETS[name]
