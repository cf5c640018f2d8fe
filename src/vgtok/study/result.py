"""What a study is, what it is given and what it returns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vgtok.data.dataset import Dataset
from vgtok.defaults import DEFAULT_CANVAS, DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.show.plot import PALETTE as PALETTE
from vgtok.tokenize.canvas import CanvasSize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

CANVASES: dict[str, CanvasSize] = {"aitodv2": (2048, 2048)}
"""The canvas the paper reads a data set at, where it is not the default."""

DEIT_WEIGHTS = "deit_tiny_patch16_224.safetensors"
"""The ImageNet checkpoint whose packed features are compared with its dense ones."""


@dataclass(frozen=True)
class Inputs:
    """What a study runs on: an opened data set, how many processes, for pictures a frame of choice.

    `out` is the folder results go to, where a long study also keeps what it needs to go on after a stop. Studies of
    accuracy run `models` by `head`, or the one each prefers, on at most `limit` images, evenly spread.
    """

    dataset: Dataset | None
    workers: int
    frame: str | None = None
    out: Path = Path("vgtok-study")
    models: tuple[str, ...] = ()
    limit: int | None = None
    head: Literal["query", "atss"] | None = None

    @property
    def model(self) -> str:
        """The one model a study runs: the shipped one unless another is named."""
        if len(self.models) > 1:
            raise InputError(f"--model: this study runs one model, not {len(self.models)}")
        return self.models[0] if self.models else DEFAULT_MODEL

    @property
    def data(self) -> Dataset:
        """The data set, refused where none was given."""
        if self.dataset is None:
            raise InputError("--data: this study needs a data set, e.g. --data visdrone:DIR")
        return self.dataset

    @property
    def annotated(self) -> Dataset:
        """The data set, refused where it has no boxes."""
        if not self.data.names:
            raise InputError("--data: this study needs annotated images, e.g. --data visdrone:DIR")
        return self.data

    def printed_for(self, tables: Collection[str]) -> str:
        """The name of the data set, refused where the paper prints no such table for it."""
        name = self.annotated.name
        if name not in tables:
            raise InputError(f"--data: the paper prints this table for {' and '.join(tables)}, not for '{name}'")
        return name

    def read_all(self) -> "Read":
        """What a study of every image of the data set read."""
        return Read(self.data.name, len(self.data.images))

    @property
    def canvas(self) -> CanvasSize:
        """The canvas the paper reads this data set at."""
        return CANVASES.get(self.data.name, DEFAULT_CANVAS)


RENDERED = "rendered scenes"
"""What results call the frames this package draws itself."""


@dataclass(frozen=True)
class Read:
    """What a study measured on: the name of the data and how many of its images were read."""

    data: str
    images: int


@dataclass(frozen=True)
class Result:
    """Rows of one table, paper beside measured.

    `read` is what they were measured on, None where no image was read. `paper_only` holds rows for data that was not
    given, with what it needs; `notes` are sentences a reader of the table should have; `plot` draws it; `pictures` are
    named RGB images instead of a plot; `also` adds fields to the JSON.
    """

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    paper_only: Sequence[Row] = ()
    plot: "Callable[[Figure], None] | None" = None
    pictures: Mapping[str, Any] = field(default_factory=dict)
    also: Mapping[str, Any] = field(default_factory=dict)
    read: Read | None = field(kw_only=True)


Option = Literal["data", "frame", "model", "limit", "head"]

DETECTS: tuple[Option, ...] = ("data", "model", "limit", "head")
"""What a study that runs a detector over a data set takes."""


@dataclass(frozen=True)
class Study:
    """A command of `vgtok study`; `takes` names the options it heeds, any other is refused."""

    name: str
    title: str
    run: Callable[[Inputs], Result]
    takes: tuple[Option, ...] = ("data",)


@dataclass(frozen=True)
class ImageJob:
    """One image of a study: its data set and place in it, its file and its boxes (N, 4) in its own pixels."""

    data: str
    index: int
    path: Path
    boxes: Any
    canvas: CanvasSize


def image_jobs(inputs: Inputs, count: int | None = None) -> list[ImageJob]:
    """A job per image, the first `count` in sorted file order, with boxes where the data set has them."""
    dataset = inputs.data
    chosen = range(len(dataset.images) if count is None else min(count, len(dataset.images)))
    return [
        ImageJob(
            dataset.name,
            i,
            dataset.images[i],
            dataset.annotations(i).boxes if dataset.names else None,
            inputs.canvas,
        )
        for i in chosen
    ]
