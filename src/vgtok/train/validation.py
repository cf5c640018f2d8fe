"""The images of a run: those it trains on, and those it is evaluated on.

The latter are held-out ones, another data set, or scenes of other seeds.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from vgtok.data.convert import write_rendered
from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.data.subset import Subset, evenly_spaced, kept_apart, of_classes
from vgtok.data.synthetic import SceneConfig
from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.saving import model_from_state
from vgtok.errors import InputError
from vgtok.evaluate.detections import Detections, run_detector
from vgtok.evaluate.evaluation import evaluate
from vgtok.evaluate.protocols import protocol_for
from vgtok.files import read_lines
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.recipe import SYNTHETIC, Recipe

_FIRST_SEED = 2**31
"""Scenes of these seeds and above are never used for training."""

_NAMED = ("visdrone", "aitodv2")
"""Data sets whose validation split an environment variable names."""


@dataclass(frozen=True)
class TrainingData:
    """A data set, None for rendered scenes, the indices to train on and those held out, and the class names."""

    dataset: AnnotatedDataset | None
    training: Sequence[int]
    held_out: Sequence[int]
    names: tuple[str, ...]


def open_data(recipe: Recipe) -> TrainingData:
    """Open the training data and set aside the images held out for validation."""
    if recipe.data == SYNTHETIC:
        return TrainingData(None, (), (), recipe.classes)
    if not recipe.data:
        raise InputError("data: this recipe needs a data set; use --set data=visdrone:DIR or another")
    dataset = open_annotated(recipe.data)
    count = len(dataset.images)
    if recipe.held_out_file:
        apart = set(read_lines(Path(recipe.held_out_file)))
        held_out = [index for index, image in enumerate(dataset.images) if str(image) in apart]
    else:
        held_out = kept_apart([Path(image) for image in dataset.images], recipe.held_out)
    training = sorted(set(range(count)) - set(held_out))
    return TrainingData(dataset, training, held_out, recipe.classes or dataset.names)


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
        images = evenly_spaced(open_annotated(_place(recipe.validation)), recipe.evaluate_images)
    elif dataset is not None and held_out:
        images = evenly_spaced(Subset(dataset, tuple(held_out)), recipe.evaluate_images)
    else:
        return None
    return of_classes(images, recipe.classes) if recipe.classes else images


def _place(validation: str) -> str:
    """Return validation data with its folder; `visdrone` or `aitodv2` alone is the one the environment names."""
    if validation not in _NAMED:
        return validation
    variable = f"VGTOK_{validation.upper()}"
    folder = os.environ.get(variable)
    if not folder:
        raise InputError(
            f"validation: '{validation}' is the folder {variable} names, which is not set; set it, name one with "
            f"--set validation={validation}:DIR, or evaluate nothing with --set validation="
        )
    return f"{validation}:{folder}"


def scene_config(recipe: Recipe) -> SceneConfig:
    """Return the scenes a recipe renders: of any kind of place or one, at any scale or at one with dense traffic."""
    layout = recipe.synthetic_layout or None
    if not recipe.synthetic_scale:
        return SceneConfig(layout)
    # People are only a few pixels at this scale.
    return SceneConfig(layout, pixels_per_meter=recipe.synthetic_scale, traffic=1.0, crowd=0.0)


def score(
    config: DetectorConfig,
    weights: Mapping[str, Tensor],
    recipe: Recipe,
    images: AnnotatedDataset,
    accelerator: Accelerator | None = None,
) -> dict[str, float]:
    """Return AP, AP50 and APS of these weights in points, with the tokenizer of the recipe.

    All processes of an accelerator call it: each detects in its share of the images, on its own device in float32. The
    main one scores all detections, the others return nothing.
    """
    model = model_from_state(config, {name: tensor.cpu().float() for name, tensor in weights.items()}, "ema")
    device = next(iter(weights.values())).device
    detector = Detector(model, canvas=recipe.canvas, head=recipe.head, sparse_head=recipe.sparse_head).to(device)
    rules = protocol_for(None, images.name, None)
    tokenizer = Tokenizer(recipe.evaluate_budget, canvas=recipe.canvas, **recipe.tokenizer_settings)
    if accelerator is None or accelerator.num_processes == 1:
        detections = run_detector(detector, images, tokenizer, rules.max_detections).detections
    else:
        first, step = accelerator.process_index, accelerator.num_processes
        share = Subset(images, tuple(range(first, len(images.images), step)))
        own = run_detector(detector, share, tokenizer, rules.max_detections).detections
        detections = _joined(gather_object([replace(own, image=first + step * own.image)]))
        if not accelerator.is_main_process:
            return {}
    metrics = evaluate(images, detections, rules).metrics
    return {name: value for name in ("AP", "AP50", "APS") if (value := metrics.get(name)) is not None}


def _joined(parts: Sequence[Detections]) -> Detections:
    """Return the detections of all processes, image by image as one process would have found them."""
    values: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Detections)
    }
    whole = Detections(**values)
    return whole.take(np.argsort(whole.image, kind="stable"))
