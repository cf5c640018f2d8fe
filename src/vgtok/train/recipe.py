"""What a training run is, as one frozen dataclass, and the recipes by name."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vgtok.data.synthetic import LAYOUTS
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.detect.config import Auxiliary, Head
from vgtok.errors import InputError, check_fields
from vgtok.tokenize.tokenizer import preset

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
    with `table` percentiles inverted from that retention table. `tokenizers` are names of `vgtok.tokenize.tokenizer`,
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
    canvas: tuple[int, int] = DEFAULT_CANVAS
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


CONVERTED = "converted-co-detr"
"""The folder of a converted release: what the paper's training starts from, and everyone has to bring."""

DENSE = "paper-visdrone-dense"
"""The recipe of the dense reference, and the folder of the model it makes: what the paper's finetunes start from."""

_VISDRONE_IMAGES, _AITODV2_IMAGES = 6471, 11214
"""Images of the training splits: steps of an epoch, one image each."""

_PAPER = Recipe(
    name=DENSE,
    detector="co-detr-eva02-large",
    start=CONVERTED,
    smallest=480 / 1152,
    largest=1536 / 1152,
    epochs=28,
    keep=_VISDRONE_IMAGES,
    evaluate=_VISDRONE_IMAGES,
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _PAPER,
        replace(
            _PAPER,
            name="paper-visdrone-finetune",
            start=DENSE,
            epochs=8,
            budgets=(0.4,),
            table="visdrone",
            evaluate_budget=0.4,
        ),
        replace(
            _PAPER,
            name="paper-aitodv2",
            canvas=(2048, 2048),
            epochs=8,
            budgets=(0.4,),
            keep=_AITODV2_IMAGES,
            evaluate=_AITODV2_IMAGES,
            evaluate_budget=0.4,
        ),
        Recipe(
            name="tiny-visdrone",
            detector="co-detr-vit-tiny",
            # The RoI head would cost a quarter of every step, and two cores have few to spare.
            auxiliary=("atss",),
            head="atss",
            encoder_weights="deit_tiny_patch16_224.safetensors",
            held_out=24,
            smallest=0.8,
            largest=1.25,
            photometric=True,
            crop=512,
            crop_queries=300,
            synthetic=0.1,
            budgets=(1.0, 0.7, 0.5, 0.4, 0.3, 0.2),
            batch=4,
            steps=2000,
            rate=4e-4,
            layer_decay=0.85,
            weight_decay=0.05,
            clip=5.0,
            warmup=100,
            final_rate=0.02,
            average=4e-3,
            average_warmup=200,
            checkpoint=50,
            keep=500,
        ),
        Recipe(
            name="synthetic-smoke",
            detector="co-detr-vit-tiny",
            # Cars on a highway: what a network that knows nothing learns within minutes, vans and lorries beside them.
            classes=("car",),
            auxiliary=("atss",),
            head="atss",
            data=SYNTHETIC,
            validation=SYNTHETIC,
            canvas=(256, 256),
            crop_queries=100,
            synthetic_scale=10.0,
            synthetic_layout="highway",
            budgets=(1.0, 0.7, 0.4),
            batch=2,
            steps=600,
            rate=1e-3,
            layer_decay=1.0,
            weight_decay=1e-4,
            clip=1.0,
            warmup=100,
            final_rate=0.01,
            average=2e-2,
            average_warmup=100,
            # Matrices this small gain nothing from fewer bits.
            precision="fp32",
            checkpoint=200,
            evaluate=200,
            evaluate_images=24,
            evaluate_budget=0.7,
        ),
    )
}
"""Every recipe by name."""


def branched(checkpoint: Path, settings: dict[str, str]) -> Recipe:
    """The recipe of the run a checkpoint belongs to, as a branch from there in which the rate falls over `decay` steps.

    The run itself is only read.
    """
    file, state = checkpoint.parent / RECIPE_FILE, checkpoint / STATE_FILE
    number = checkpoint.name.removeprefix("step-")
    if not file.is_file() or not state.is_file() or not number.isdecimal():
        raise InputError(f"{checkpoint}: not a checkpoint of a run; name a folder like RUN/step-001000")
    chosen = read_recipe(file).changed({"schedule": "constant", **settings, "branch": str(checkpoint)})
    if not chosen.decay:
        raise InputError(f"{checkpoint}: say over how many steps the branch decays, for example --set decay=300")
    return replace(chosen, steps=int(number) + chosen.decay)


def recipe_named(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise InputError(f"recipe: '{name}' is not one of {', '.join(RECIPES)}")
    return RECIPES[name]
