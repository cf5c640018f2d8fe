"""Recipes by name: the paper's for GPUs, the one of the shipped model, and one small enough for a test."""

from dataclasses import replace
from pathlib import Path

from vgtok.errors import InputError
from vgtok.train.recipe import RECIPE_FILE, STATE_FILE, SYNTHETIC, Recipe, read_recipe

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
