"""What a training run is, as one frozen dataclass: every field can be set from the command line by its name."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vgtok.data.synthetic import LAYOUTS
from vgtok.detect.config import Auxiliary
from vgtok.detect.heads import Head
from vgtok.errors import InputError
from vgtok.fields import check_fields
from vgtok.tokenize.presets import preset

Precision = Literal["auto", "fp32", "bf16"]
Schedule = Literal["cosine", "constant"]
RECIPE_FILE, STATE_FILE = "recipe.json", "state.json"
"""Where a run keeps its recipe, and each of its checkpoints how far it is."""

SYNTHETIC = "synthetic"
"""The data that needs no files: scenes rendered as they are needed."""


@dataclass(frozen=True)
class Recipe:
    """One training run.

    `detector` names a configuration, trained with the `auxiliary` heads beside it; `head` is the one that is scored and
    predicts afterwards. It starts from `start`, a saved model, or from random weights, in which case `encoder_weights`
    may name a checkpoint of the encoder in the format `encoder_source`. `data` and `validation` are data sets as
    `vgtok evaluate` names them, or 'synthetic'; where `validation` is empty, `held_out` images of the training data are
    kept apart for it.

    A lesson is one frame fitted into `canvas` times a factor between `smallest` and `largest`, partitioned whole at
    one of `budgets` drawn at random, then cut to a `crop` around an object (0 keeps the frame), where `crop_queries`
    of the model's queries suffice (0 is all). `synthetic` is the share of rendered lessons; those are `synthetic_scale`
    px a metre, or of any scale for 0, and of places like `synthetic_layout`, or of any. `budgets` are exact counts, or
    with `table` percentiles inverted from that retention table. `tokenizers` are names of `vgtok.tokenize.presets`,
    one drawn for each image (a name given twice is drawn twice as often) among those that reach its budget; without
    any, `scorer`, `rank` and `splitter` say how images are read.

    `batch` lessons over all processes make a step; `images_per_pass` of them share a forward pass, whose losses are
    averages over it. `steps` of 0 are counted from `epochs`. The first `auxiliary_steps` train the auxiliary heads
    without the queries, which costs less. Rates warm up over `warmup` steps from `warmup_start`, a share of `rate`.
    Then, by `schedule`, they follow a cosine to the share `final_rate`, or stay, but for the last `decay` steps, in
    which they fall to it. `layer_decay` lowers them from the last encoder block to the first. `branch` is the
    checkpoint of another run to start from, with its step and all it learned. `average` is the momentum of the running
    average that is evaluated and shipped. Every `checkpoint` steps the run is saved, every `keep` steps for good (0
    never), and every `evaluate` steps scored on `evaluate_images` images at `evaluate_budget`.
    """

    name: str
    detector: str
    classes: tuple[str, ...] = ()
    auxiliary: tuple[Auxiliary, ...] = ("roi", "atss")
    head: Head = "query"
    start: str = ""
    encoder_weights: str = ""
    encoder_source: str = "timm"
    data: str = ""
    validation: str = ""
    held_out: int = 0
    canvas: tuple[int, int] = (2048, 1152)
    smallest: float = 1.0
    largest: float = 1.0
    flip: bool = True
    photometric: bool = False
    crop: int = 0
    crop_queries: int = 0
    synthetic: float = 0.0
    synthetic_scale: float = 0.0
    synthetic_layout: str = ""
    budgets: tuple[float, ...] = (1.0,)
    table: str = ""
    scorer: str = "tophat"
    rank: float = 0.20
    splitter: str = "quadtree"
    tokenizers: tuple[str, ...] = ()
    batch: int = 1
    images_per_pass: int = 1
    steps: int = 0
    epochs: int = 0
    branch: str = ""
    auxiliary_steps: int = 0
    rate: float = 5e-5
    layer_decay: float = 0.8
    weight_decay: float = 0.01
    clip: float = 0.1
    warmup: int = 500
    warmup_start: float = 0.01
    final_rate: float = 0.0
    schedule: Schedule = "cosine"
    decay: int = 0
    average: float = 1e-4
    average_warmup: int = 2000
    precision: Precision = "auto"
    seed: int = 0
    checkpoint: int = 1000
    keep: int = 0
    evaluate: int = 0
    evaluate_images: int = 50
    evaluate_budget: float = 1.0

    def __post_init__(self) -> None:
        # JSON has lists where this has tuples.
        for name in ("classes", "auxiliary", "canvas", "budgets", "tokenizers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self)
        positive = ("batch", "images_per_pass", "rate", "clip", "checkpoint", "smallest", "largest", "evaluate_images")
        for name in positive:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: {getattr(self, name)} is not above 0")
        counts = ("steps", "epochs", "warmup", "held_out", "keep", "evaluate", "crop", "crop_queries", "average_warmup")
        for name in (*counts, "auxiliary_steps", "decay", "weight_decay", "synthetic_scale"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: {getattr(self, name)} is below 0")
        for name in ("synthetic", "average", "layer_decay", "warmup_start", "final_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: {getattr(self, name)} is not a share between 0 and 1")
        if self.smallest > self.largest:
            raise InputError(f"smallest: {self.smallest} is above largest, {self.largest}")
        if self.synthetic_layout and self.synthetic_layout not in LAYOUTS:
            raise InputError(f"synthetic_layout: '{self.synthetic_layout}' is not one of {', '.join(LAYOUTS)}")
        if self.crop % 64:
            raise InputError(f"crop: {self.crop} px is not a multiple of 64")
        if not self.budgets or not all(0 < budget <= 1 for budget in self.budgets):
            raise InputError(f"budgets: {self.budgets} are not shares above 0 and up to 1")
        if self.head != "query" and (self.head != "atss" or "atss" not in self.auxiliary):
            raise InputError(f"head: '{self.head}' is neither query nor atss, trained as an auxiliary head")
        for name, kinds in (("precision", Precision), ("schedule", Schedule)):
            if getattr(self, name) not in get_args(kinds):
                raise InputError(f"{name}: '{getattr(self, name)}' is not one of {', '.join(get_args(kinds))}")
        if self.batch % self.images_per_pass:
            raise InputError(f"images_per_pass: {self.images_per_pass} does not divide the batch of {self.batch}")
        if self.auxiliary_steps and "atss" not in self.auxiliary:
            raise InputError("auxiliary_steps: without the atss head there is nothing to train but the queries")
        for name in self.tokenizers:
            preset(name)

    @property
    def reading(self) -> dict[str, Any]:
        """How frames are read at any budget, as arguments of a tokenizer."""
        return {"scorer": self.scorer, "rank": self.rank, "splitter": self.splitter}

    def readings(self) -> list[dict[str, Any]]:
        """The tokenizers images are read by, as arguments of each; one is drawn for an image."""
        return [preset(name) for name in self.tokenizers] or [self.reading]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a JSON file holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> "Recipe":
        """The recipe a JSON file called `source` holds; fields newer than the file have their defaults."""
        known = {item.name for item in fields(cls)}
        if unknown := values.keys() - known:
            raise InputError(f"{source}: unknown settings {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"{source}: not a recipe ({error})") from None

    def changed(self, settings: dict[str, str]) -> "Recipe":
        """The recipe with fields set from text, as the command line gives them: `batch` '4', `budgets` '1.0,0.4'."""
        kinds = get_type_hints(Recipe)
        known = [item.name for item in fields(Recipe) if item.name != "name"]
        for name in settings:
            if name not in known:
                raise InputError(f"--set {name}: no such setting; there are {', '.join(known)}")
        return replace(self, **{name: _value(name, text, kinds[name]) for name, text in settings.items()})


def read_recipe(path: Path) -> Recipe:
    """The recipe in a JSON file, as a run writes it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as a recipe ({error})") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a recipe; expected an object of settings")
    return Recipe.from_dict(values, str(path))


def _value(name: str, text: str, kind: Any) -> Any:
    """Read one setting as what its field holds."""
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if get_origin(kind) is tuple:
            inner = get_args(kind)[0]
            parts = text.replace("x", ",").split(",") if name == "canvas" else text.split(",")
            return tuple((inner if inner in (int, float) else str)(part) for part in parts if part)
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a list with commas")
        raise InputError(f"--set {name}={text}: expected {expected}") from None
