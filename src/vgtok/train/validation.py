"""Evaluate a run on images it is not trained on: held-out ones, another data set, or scenes of other seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from vgtok.data.convert import write_rendered
from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.data.subset import Subset, evenly_spaced, of_classes
from vgtok.data.synthetic import SceneConfig
from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.saving import model_from_state
from vgtok.evaluate.detections import run_detector
from vgtok.evaluate.evaluation import evaluate
from vgtok.evaluate.protocols import protocol_for
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.recipe import SYNTHETIC, Recipe

_FIRST_SEED = 2**31
"""Scenes of these seeds and above are never used for training."""


def validation_images(
    recipe: Recipe, run: Path, dataset: AnnotatedDataset | None, held_out: Sequence[int]
) -> AnnotatedDataset | None:
    """Return the validation images of a recipe, or None; rendered scenes are written to the run's folder.

    Objects of classes that are not trained are left out.
    """
    if recipe.validation == SYNTHETIC:
        seeds = range(_FIRST_SEED, _FIRST_SEED + recipe.evaluate_images)
        images = open_annotated(write_rendered(run / "validation", seeds, *recipe.canvas, scene_config(recipe)))
    elif recipe.validation:
        images = evenly_spaced(open_annotated(recipe.validation), recipe.evaluate_images)
    elif dataset is not None and held_out:
        images = evenly_spaced(Subset(dataset, tuple(held_out)), recipe.evaluate_images)
    else:
        return None
    return of_classes(images, recipe.classes) if recipe.classes else images


def scene_config(recipe: Recipe) -> SceneConfig:
    """Return the scenes a recipe renders: of any kind of place or one, at any scale or at one with dense traffic."""
    layout = recipe.synthetic_layout or None
    if not recipe.synthetic_scale:
        return SceneConfig(layout)
    # People are only a few pixels at this scale.
    return SceneConfig(layout, pixels_per_meter=recipe.synthetic_scale, traffic=1.0, crowd=0.0)


def score(
    config: DetectorConfig, weights: Mapping[str, Tensor], recipe: Recipe, images: AnnotatedDataset
) -> dict[str, float]:
    """Return AP, AP50 and APS of these weights in points, with the tokenizer of the recipe."""
    model = model_from_state(config, {name: tensor.cpu().float() for name, tensor in weights.items()}, "ema")
    device = next(iter(weights.values())).device
    detector = Detector(model, canvas=recipe.canvas, head=recipe.head).to(device)
    rules = protocol_for(None, images.name, None)
    tokenizer = Tokenizer(recipe.evaluate_budget, canvas=recipe.canvas, **recipe.tokenizer_settings)
    found = run_detector(detector, images, tokenizer, rules.max_detections)
    metrics = evaluate(images, found.detections, rules).metrics
    return {name: value for name in ("AP", "AP50", "APS") if (value := metrics.get(name)) is not None}
