"""Training recipes: one frozen dataclass that describes a run, and the recipes by name.

Values come in from Python, from a `recipe.json` or as text from `--set`; every one is checked on construction.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vgtok.data.synthetic import LAYOUTS
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.detect.config import Auxiliary, Head
from vgtok.errors import InputError, check_fields
from vgtok.tokenize.tokenizer import preset

RECIPE_FILE, STATE_FILE = "recipe.json", "state.json"
"""Files of a run and of each of its checkpoints: the recipe, and the step it has reached."""

SYNTHETIC = "synthetic"
"""The data set that needs no files: scenes rendered on demand."""

OLD_NAMES = {
    "start": "init_from",
    "smallest": "scale_min",
    "largest": "scale_max",
    "rate": "learning_rate",
    "clip": "max_grad_norm",
    "warmup": "warmup_steps",
    "decay": "decay_steps",
    "average": "ema_momentum",
    "average_warmup": "ema_warmup",
    "checkpoint": "checkpoint_every",
    "keep": "keep_every",
    "evaluate": "evaluate_every",
}
"""Fields by the names they had up to version 0.1, which recipe files and `--set` may still use."""

_LOG = logging.getLogger(__name__)


def _setting(group: str, default: Any, help_: str) -> Any:
    return field(default=default, metadata={"group": group, "help": help_})


_model = partial(_setting, "model")
_data = partial(_setting, "data")
_tokens = partial(_setting, "tokens")
_optimization = partial(_setting, "optimization")
_saving = partial(_setting, "saving and evaluation")


@dataclass(frozen=True)
class Recipe:
    """One training run. `describe` returns what each field means, by group."""

    name: str
    detector: str = field(metadata={"group": "model", "help": "Detector configuration, as listed by `vgtok models`."})
    classes: tuple[str, ...] = _model((), "Classes to train; those of the data by default.")
    auxiliary: tuple[Auxiliary, ...] = _model(("roi", "atss"), "Auxiliary heads trained beside the queries.")
    head: Head = field(
        default="query",
        metadata={"group": "model", "help": "Head that is evaluated, and that predicts after training."},
    )
    sparse_head: bool = _model(
        False,
        "Leave unsplit 64-px roots out of the finest level of neck and heads, also in the saved model.",
    )
    init_from: str = _model("", "Saved model to start from; random weights if empty.")
    encoder_weights: str = _model("", "Encoder checkpoint to start from when init_from is empty.")
    encoder_source: str = _model("timm", "Format of encoder_weights.")

    data: str = _data("", "Training data as for `vgtok evaluate`, or 'synthetic'.")
    validation: str = _data("", "Validation data, also visdrone or aitodv2 alone; held_out training images if empty.")
    held_out: int = _data(0, "Training images set aside for validation.")
    held_out_file: str = _data("", "Text file of training images to set aside, one per line, instead of held_out.")
    canvas: tuple[int, int] = _data(DEFAULT_CANVAS, "Canvas that images are resized to, as WIDTHxHEIGHT.")
    scale_min: float = _data(1.0, "Smallest random factor applied to the canvas.")
    scale_max: float = _data(1.0, "Largest random factor applied to the canvas.")
    flip: bool = _data(True, "Flip half of the images horizontally.")
    photometric: bool = _data(False, "Change brightness and color at random.")
    crop: int = _data(0, "Side in px of a crop around a random object, cut after tokenizing; 0 keeps the image.")
    crop_queries: int = _data(0, "Queries used on a crop; 0 uses all.")
    synthetic: float = _data(0.0, "Share of samples that are rendered scenes.")
    synthetic_scale: float = _data(0.0, "Scale of rendered scenes in px per meter; 0 draws one.")
    synthetic_layout: str = _data("", "Kind of place that is rendered; any if empty.")

    budgets: tuple[float, ...] = _tokens((1.0,), "Budgets, one drawn for each image; exact counts unless table is set.")
    table: str = _tokens("", "Retention table to turn budgets into percentiles.")
    scorer: str = _tokens("tophat", "Score of the tokenizer.")
    rank: float = _tokens(0.20, "Gate rank of the tokenizer.")
    splitter: str = _tokens("quadtree", "Splitter of the tokenizer: quadtree or single_pass.")
    tokenizers: tuple[str, ...] = _tokens(
        (), "Tokenizers by name, instead of scorer, rank and splitter; one that reaches the budget is drawn per image."
    )

    batch: int = _optimization(1, "Samples per step, over all processes.")
    images_per_pass: int = _optimization(
        0, "Samples per forward pass; must divide the batch. 0 packs all of a process on a GPU, one on a CPU."
    )
    loaders: int = _optimization(0, "Processes that prepare samples; 0 is up to four on a GPU, a thread on a CPU.")
    steps: int = _optimization(0, "Training steps; 0 computes them from epochs.")
    epochs: int = _optimization(0, "Passes over the training data, used when steps is 0.")
    branch: str = _optimization("", "Checkpoint of another run to continue from, with its step and EMA.")
    auxiliary_steps: int = _optimization(0, "First steps that train the auxiliary heads only, which is cheaper.")
    learning_rate: float = _optimization(5e-5, "Peak learning rate.")
    layer_decay: float = _optimization(0.8, "Factor on the learning rate per encoder block, from last to first.")
    weight_decay: float = _optimization(0.01, "Weight decay; not applied to biases and norms.")
    max_grad_norm: float = _optimization(0.1, "Largest norm of the gradient; longer ones are clipped.")
    warmup_steps: int = _optimization(500, "Steps of linear warmup.")
    warmup_start: float = _optimization(0.01, "Learning rate at step 0, as a share of the peak.")
    final_rate: float = _optimization(0.0, "Learning rate at the end, as a share of the peak.")
    schedule: Literal["cosine", "constant"] = _optimization(
        "cosine", "After warmup: cosine, or constant with a decay at the end."
    )
    decay_steps: int = _optimization(0, "Steps of decay at the end of the constant schedule.")
    ema_momentum: float = _optimization(1e-4, "Share of the new weights in each update of the averaged model.")
    ema_warmup: int = _optimization(2000, "Time constant, in steps, of a faster average at the start; 0 is none.")
    precision: Literal["auto", "fp32", "bf16"] = _optimization(
        "auto", "fp32, bf16, or auto for bf16 where the hardware supports it."
    )
    seed: int = _optimization(0, "Seed of samples, augmentation and weights.")

    checkpoint_every: int = _saving(1000, "Steps between checkpoints.")
    keep_every: int = _saving(0, "Steps between checkpoints that are kept permanently; 0 keeps none.")
    evaluate_every: int = _saving(0, "Steps between evaluations; 0 never evaluates.")
    evaluate_images: int = _saving(50, "Validation images per evaluation.")
    evaluate_budget: float = _saving(1.0, "Token budget of evaluations.")
    patience: int = _saving(0, "Evaluations without a higher AP after which training ends; 0 never ends it.")

    def __post_init__(self) -> None:
        # JSON has lists where this has tuples.
        for name in ("classes", "auxiliary", "canvas", "budgets", "tokenizers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(
            self,
            positive=(
                "batch",
                "learning_rate",
                "max_grad_norm",
                "checkpoint_every",
                "scale_min",
                "scale_max",
                "evaluate_images",
            ),
        )
        for name in ("weight_decay", "synthetic_scale", "images_per_pass", "loaders"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: {getattr(self, name)} is below 0")
        for name in ("synthetic", "ema_momentum", "layer_decay", "warmup_start", "final_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: {getattr(self, name)} is not a share between 0 and 1")
        if self.scale_min > self.scale_max:
            raise InputError(f"scale_min: {self.scale_min} is above scale_max, {self.scale_max}")
        if self.synthetic_layout and self.synthetic_layout not in LAYOUTS:
            raise InputError(f"synthetic_layout: '{self.synthetic_layout}' is not one of {', '.join(LAYOUTS)}")
        if self.crop % 64:
            raise InputError(f"crop: {self.crop} px is not a multiple of 64")
        if not self.budgets or not all(0 < budget <= 1 for budget in self.budgets):
            raise InputError(f"budgets: {self.budgets} are not shares above 0 and up to 1")
        if self.head != "query" and (self.head != "atss" or "atss" not in self.auxiliary):
            raise InputError(f"head: '{self.head}' is neither query nor atss, trained as an auxiliary head")
        if self.images_per_pass and self.batch % self.images_per_pass:
            raise InputError(f"images_per_pass: {self.images_per_pass} does not divide the batch of {self.batch}")
        if self.auxiliary_steps and "atss" not in self.auxiliary:
            raise InputError("auxiliary_steps: without the atss head there is nothing to train but the queries")
        for name in self.tokenizers:
            preset(name)

    @classmethod
    def describe(cls) -> dict[str, dict[str, str]]:
        """Return the help of every field that can be set, by group."""
        groups: dict[str, dict[str, str]] = {}
        for item in fields(cls):
            if item.metadata:
                groups.setdefault(item.metadata["group"], {})[item.name] = item.metadata["help"]
        return groups

    @property
    def tokenizer_settings(self) -> dict[str, Any]:
        """Arguments of the tokenizer besides the budget; `tokenizers` replace them in training."""
        return {"scorer": self.scorer, "rank": self.rank, "splitter": self.splitter}

    def tokenizer_choices(self) -> list[dict[str, Any]]:
        """Return the arguments of every tokenizer that images may be read with."""
        return [preset(name) for name in self.tokenizers] or [self.tokenizer_settings]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> "Recipe":
        """Return the recipe in a JSON file called `source`; fields it lacks get their defaults."""
        values = {OLD_NAMES.get(name, name): value for name, value in values.items()}
        known = {item.name for item in fields(cls)}
        if unknown := values.keys() - known:
            raise InputError(f"{source}: unknown settings {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"{source}: not a recipe ({error})") from None

    def with_settings(self, settings: Mapping[str, str]) -> "Recipe":
        """Return the recipe with fields set from text, as on the command line: `batch` '4', `budgets` '1.0,0.4'.

        Old names of fields are accepted and reported as a warning.
        """
        kinds = get_type_hints(Recipe)
        known = [item.name for item in fields(Recipe) if item.name != "name"]
        changes = {}
        for given, text in settings.items():
            name = OLD_NAMES.get(given, given)
            if name not in known:
                raise InputError(f"--set {given}: no such setting; there are {', '.join(known)}")
            if name in changes or (name != given and name in settings):
                raise InputError(f"--set {given}: is the old name of {name}, which is set too")
            if name != given:
                _LOG.warning("--set %s: is now called %s", given, name)
            changes[name] = _parse(name, text, kinds[name])
        return replace(self, **changes)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a JSON file, as a run writes it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as a recipe ({error})") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a recipe; expected an object of settings")
    return Recipe.from_dict(values, str(path))


def _parse(name: str, text: str, kind: Any) -> Any:
    """Parse one setting as the type of its field."""
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
"""Folder of a converted Co-DETR release, which the paper's training starts from and users must provide."""

DENSE = "paper-visdrone-dense"
"""Recipe of the dense reference, and folder of the model it gives, which the paper's fine-tuning starts from."""

_VISDRONE_IMAGES, _AITODV2_IMAGES = 6471, 11214
"""Images in the training splits, and so steps per epoch at one image per step."""

_PAPER = Recipe(
    name=DENSE,
    detector="co-detr-eva02-large",
    init_from=CONVERTED,
    validation="visdrone",
    scale_min=480 / 1152,
    scale_max=1536 / 1152,
    epochs=28,
    keep_every=_VISDRONE_IMAGES,
    evaluate_every=_VISDRONE_IMAGES,
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _PAPER,
        replace(
            _PAPER,
            name="paper-visdrone-finetune",
            init_from=DENSE,
            epochs=8,
            budgets=(0.4,),
            table="visdrone",
            evaluate_budget=0.4,
        ),
        replace(
            _PAPER,
            name="paper-aitodv2",
            validation="aitodv2",
            canvas=(2048, 2048),
            epochs=8,
            budgets=(0.4,),
            keep_every=_AITODV2_IMAGES,
            evaluate_every=_AITODV2_IMAGES,
            evaluate_budget=0.4,
        ),
        Recipe(
            name="tiny-visdrone",
            detector="co-detr-vit-tiny",
            # The RoI head would take a quarter of every step on two CPU cores.
            auxiliary=("atss",),
            head="atss",
            encoder_weights="deit_tiny_patch16_224.safetensors",
            held_out=24,
            scale_min=0.8,
            scale_max=1.25,
            photometric=True,
            crop=512,
            crop_queries=300,
            synthetic=0.1,
            budgets=(1.0, 0.7, 0.5, 0.4, 0.3, 0.2),
            batch=4,
            steps=2000,
            learning_rate=4e-4,
            layer_decay=0.85,
            weight_decay=0.05,
            max_grad_norm=5.0,
            warmup_steps=100,
            final_rate=0.02,
            ema_momentum=4e-3,
            ema_warmup=200,
            checkpoint_every=50,
            keep_every=500,
        ),
        Recipe(
            name="synthetic-smoke",
            detector="co-detr-vit-tiny",
            # A network with random weights learns to find cars on a highway within minutes.
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
            learning_rate=1e-3,
            layer_decay=1.0,
            weight_decay=1e-4,
            max_grad_norm=1.0,
            warmup_steps=100,
            final_rate=0.01,
            ema_momentum=2e-2,
            ema_warmup=100,
            # Matrices this small are not faster in bf16.
            precision="fp32",
            checkpoint_every=200,
            evaluate_every=200,
            evaluate_images=24,
            evaluate_budget=0.7,
        ),
    )
}
"""Recipes by name."""


def branch_recipe(checkpoint: Path, settings: Mapping[str, str]) -> Recipe:
    """Return a recipe that continues from a checkpoint and lets the learning rate decay over `decay_steps`.

    All other settings are those of the run the checkpoint belongs to, which is not changed.
    """
    file, state = checkpoint.parent / RECIPE_FILE, checkpoint / STATE_FILE
    number = checkpoint.name.removeprefix("step-")
    if not file.is_file() or not state.is_file() or not number.isdecimal():
        raise InputError(f"{checkpoint}: not a checkpoint of a run; name a folder like RUN/step-001000")
    recipe = read_recipe(file).with_settings({"schedule": "constant", **settings, "branch": str(checkpoint)})
    if not recipe.decay_steps:
        raise InputError(f"{checkpoint}: set the number of steps the branch decays over, e.g. --set decay_steps=300")
    return replace(recipe, steps=int(number) + recipe.decay_steps)


def recipe_named(name: str) -> Recipe:
    """Return a recipe by name."""
    if name not in RECIPES:
        raise InputError(f"recipe: '{name}' is not one of {', '.join(RECIPES)}")
    return RECIPES[name]
