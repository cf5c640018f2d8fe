"""Finetune a detector on your own classes: a data set in, a model folder and a report out.

Classes of equal or mapped names keep their weights, others are initialized. Canvas, crops, learning rate and steps
follow from the data and the time you give. A folder holds one finetune; the same call resumes it.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.data.dataset import AnnotatedDataset, image_size, open_annotated
from vgtok.data.subset import Subset, kept_apart, of_classes
from vgtok.data.yolo import open_yolo, yolo_splits
from vgtok.defaults import DEFAULT_MODEL
from vgtok.detect.classes import match_classes, with_classes
from vgtok.detect.detector import Detector
from vgtok.detect.loading import find_detector
from vgtok.detect.saving import CARD_FILE, is_saved, load_detector, model_card, read_config, save_detector
from vgtok.errors import InputError
from vgtok.evaluate.detections import run_detector
from vgtok.evaluate.evaluation import Evaluation, apply_protocol, evaluate_scored, find_mistakes
from vgtok.evaluate.protocols import protocol_for
from vgtok.files import read_json, read_lines, write_text
from vgtok.tokenize.geometry import ROOT
from vgtok.tokenize.tokenizer import preset
from vgtok.train.loop import set_up, train
from vgtok.train.recipe import Recipe
from vgtok.train.run_folder import best_checkpoint, read_metrics
from vgtok.train.run_to_model import HISTORY_FILE, detector_from_run, training_history, training_section

PLAN_FILE = "finetune.json"
"""What a folder was finetuned with, and the recipe that was chosen."""

APART_FILE = "validation.txt"
"""The images kept apart for validation where the data has no validation split."""

_RUN, _MODEL, _REPORT = "run", "model", "report"
_CROP, _BATCH = 512, 4
_ENLARGED = 1.5
"""Images are read at up to this many times their size, as the shipped model reads VisDrone."""
_APART = 0.2
"""Share of the images kept apart for validation if the data has no validation split."""
_EVALUATIONS, _PATIENCE = 8, 4
_EVALUATION_SHARE = 0.2
"""Share of the time that is spent on evaluations."""
_AUXILIARY_SHARE = 0.7
"""Share of the steps before the queries learn: at the end, when the features they read have settled."""
_REPLANNED = (0.1, 0.5)
"""Shares of a run after which its length is planned again: the machine may be busier or freer than before."""
_BUDGETS = (1.0, 0.7, 0.5, 0.4, 0.3, 0.2)
_LEAST_STEPS, _MOST_STEPS = 20, 100_000
_LEAST_EVALUATED = 16
"""Fewer images may not show every class; AP would then be a mean over others than the next one."""
_FINAL_IMAGES = 500
"""Most validation images of the report."""


@dataclass(frozen=True)
class Finetuned:
    """A finished finetune: the model's folder, the folder of its report, its evaluation, and the classes it kept.

    `example` is an image of the validation data, to try the model on.
    """

    model: Path
    report: Path
    evaluation: Evaluation
    kept: dict[str, str]
    example: Path

    def load(self) -> Detector:
        """Load the finetuned detector."""
        return load_detector(self.model)


def finetune(
    data: str,
    model: str = DEFAULT_MODEL,
    *,
    out: str | Path = "vgtok-runs/finetune",
    minutes: float = 20.0,
    epochs: int | None = None,
    budget: float | None = None,
    validation: str | None = None,
    mapping: Mapping[str, str] | None = None,
) -> Finetuned:
    """Finetune a detector on the data set `data` and return where its model and its report are.

    `data` is a data set as for `vgtok evaluate`: yolo:data.yaml, coco:FILE:DIR or visdrone:DIR. Without a validation
    split, and without `validation`, whole sequences of images are kept apart. Training ends after `minutes`, or after
    `epochs` passes over the images if given, or when AP stops rising. `mapping` lets a new class start from a class of
    the model: {"minibus": "van"}. The model is evaluated at `budget`, by default its own.
    """
    if not minutes > 0:
        raise InputError(f"minutes: {minutes} is not above 0")
    if epochs is not None and epochs < 1:
        raise InputError(f"epochs: {epochs} is not 1 or more")
    out = Path(out)
    asked = {
        "data": data,
        "model": model,
        "minutes": minutes,
        "epochs": epochs,
        "budget": budget,
        "validation": validation,
        "mapping": dict(mapping or {}),
    }
    plan = _stored_plan(out, asked)
    if plan is None:
        plan = _new_plan(out, asked)
    if epochs is None:
        for share in _REPLANNED:
            plan = _replanned(plan, out, share)
    recipe = Recipe.from_dict(plan["recipe"], str(out / PLAN_FILE))
    train(recipe, out / _RUN)
    source = best_checkpoint(out / _RUN)
    assert source is not None
    detector = detector_from_run(source)
    images = _validation_part(recipe)
    evaluation = _report(detector, images, recipe, out / _REPORT)
    row = {"protocol": evaluation.protocol.name, "images": evaluation.images, "head": detector.head}
    detector.evaluations = ({**row, "budget": recipe.evaluate_budget, **evaluation.metrics},)
    save_detector(detector, out / _MODEL, half=True)
    card = model_card(read_config(out / _MODEL), out.name)
    write_text(out / _MODEL / CARD_FILE, f"{card}\n{training_section(source)}")
    write_text(out / _MODEL / HISTORY_FILE, training_history(source))
    return Finetuned(out / _MODEL, out / _REPORT, evaluation, plan["kept"], Path(images.images[0]))


def _stored_plan(out: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the folder was begun with, None for a new one; raise if that was something else."""
    path = out / PLAN_FILE
    if not path.is_file():
        return None
    stored = read_json(path, "finetune plan")
    if not isinstance(stored, dict) or not {"asked", "kept", "recipe"} <= stored.keys():
        raise InputError(f"{path}: not a finetune plan; choose another --out, or delete it")
    differing = sorted(name for name in asked if stored["asked"].get(name) != asked[name])
    if differing:
        raise InputError(
            f"{out}: holds a finetune with another {', '.join(differing)}; choose another --out, or delete it"
        )
    return stored


def _new_plan(out: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Write the start model and choose the recipe."""
    training, validation = _splits(asked["data"], asked["validation"])
    dataset = open_annotated(training)
    if not dataset.names:
        raise InputError(f"data: {asked['data']} names no classes")
    detector = find_detector(asked["model"])
    kept = match_classes(dataset.names, detector.names, asked["mapping"])
    start = out / Path(asked["model"]).name
    if not is_saved(start):
        detector.model = with_classes(detector.model, dataset.names, kept)
        save_detector(detector, start)
    apart = out / APART_FILE
    held_out = [] if validation else _set_aside(dataset)
    if held_out:
        write_text(apart, "".join(f"{image}\n" for image in held_out))
    recipe = _recipe(dataset, detector, training, validation, str(start), asked["budget"])
    recipe = recipe if validation else replace(recipe, held_out_file=str(apart))
    if asked["epochs"] is not None:
        steps = -(-asked["epochs"] * (len(dataset.images) - len(held_out)) // recipe.batch)
        recipe = _with_steps(recipe, steps, 50)
    else:
        seconds = 60.0 * asked["minutes"]
        steps = int((1 - _EVALUATION_SHARE) * seconds / _seconds_per_step(_with_steps(recipe, _LEAST_STEPS, 1)))
        steps = max(steps, _LEAST_STEPS)
        per_image = _seconds_per_image(detector, dataset, recipe)
        images = int(_EVALUATION_SHARE * seconds / (_EVALUATIONS * per_image))
        recipe = _with_steps(recipe, steps, images)
    return _stored(out, {"asked": dict(asked), "kept": kept, "recipe": recipe.to_dict()})


def _stored(out: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Write a plan to the folder and return it."""
    write_text(out / PLAN_FILE, json.dumps(plan, indent=1) + "\n")
    return plan


def _replanned(plan: dict[str, Any], out: Path, share: float) -> dict[str, Any]:
    """Train a share of the steps; return the plan with as many more as the time that is left allows."""
    recipe, run = Recipe.from_dict(plan["recipe"], str(out / PLAN_FILE)), out / _RUN
    until = max(3, round(share * recipe.steps))
    if _step_ends(run).size >= until:
        return plan
    train(recipe, run, until)
    ends = _step_ends(run)
    done, left = ends.size, (1 - _EVALUATION_SHARE) * 60.0 * plan["asked"]["minutes"] - ends[-1]
    more = int(left / (np.median(np.diff(ends)) * _slower(recipe, share)))
    planned = _with_steps(recipe, max(done + more, until + 1, _LEAST_STEPS), recipe.evaluate_images)
    # Averages and warmup have begun and stay as they are.
    kept = {name: getattr(recipe, name) for name in ("warmup_steps", "ema_momentum", "ema_warmup")}
    return _stored(out, {**plan, "recipe": replace(planned, **kept).to_dict()})


def _step_ends(run: Path) -> NDArray[np.float64]:
    """Return the seconds of training after each step of a run so far."""
    return np.array([entry["seconds"] for entry in read_metrics(run) if "loss" in entry])


def _slower(recipe: Recipe, share: float) -> float:
    """Return the mean time of the steps after a share of a run, in times of a step at its start.

    A step with all losses, as at the end of a run, takes about 1.4 times as long.
    """
    return 1 + 0.4 * (1 - _AUXILIARY_SHARE) / (1 - share) if recipe.auxiliary_steps else 1.0


def _splits(data: str, validation: str | None) -> tuple[str, str]:
    """Return the training data and the validation data, which is empty if it has to be kept apart."""
    kind, _, rest = data.partition(":")
    file, _, split = rest.partition(":")
    if kind != "yolo" or split:
        return data, validation or ""
    splits = yolo_splits(Path(file))
    own = "train" in splits and "val" in splits
    # Many exports name one folder twice; what is trained on cannot validate.
    if own and set(open_yolo(Path(file), "train").images) & set(open_yolo(Path(file), "val").images):
        own = False
    return f"{data}:{'train' if 'train' in splits else splits[0]}", validation or (f"{data}:val" if own else "")


def _recipe(
    dataset: AnnotatedDataset, detector: Detector, data: str, validation: str, start: str, budget: float | None
) -> Recipe:
    """Return the recipe but for its length."""
    canvas = _canvas(dataset, detector)
    cropped = min(canvas) > _CROP
    budgets = _BUDGETS if budget is None else (budget, budget, 1.0)
    return Recipe(
        name="finetune",
        detector="co-detr-vit-tiny",
        auxiliary=detector.model.config.auxiliary,
        head=detector.head,
        sparse_head=detector.sparse_head,
        **preset(detector.tokenizer_name),
        init_from=start,
        data=data,
        validation=validation,
        canvas=canvas,
        scale_min=0.8,
        scale_max=1.25,
        photometric=True,
        crop=_CROP if cropped else 0,
        crop_queries=300 if cropped else 0,
        budgets=budgets,
        batch=_BATCH,
        images_per_pass=_BATCH if cropped else 1,
        learning_rate=4e-4 if detector.model.encoder.config.dim <= 192 else 5e-5,
        layer_decay=0.85,
        weight_decay=0.05,
        max_grad_norm=5.0,
        final_rate=0.02,
        patience=_PATIENCE,
        evaluate_budget=detector.budget if budget is None else budget,
    )


def _set_aside(dataset: AnnotatedDataset) -> list[Path]:
    """Return the images to validate on: a fifth of them, whole sequences, every class that two sequences show.

    Of a single sequence it is the last fifth, which shares as little as can be with the rest.
    """
    count = len(dataset.images)
    labels = [dataset.annotations(index).labels.tolist() for index in range(count)]
    images = [Path(image) for image in dataset.images]
    wanted = max(1, round(_APART * count))
    apart = kept_apart(images, wanted, labels)
    if count < 2:
        raise InputError(f"data: {count} images are too few to train on and to validate; name --validation")
    if len(apart) > count // 2:
        apart = list(range(count - wanted, count))
    return [images[index] for index in apart]


def _with_steps(recipe: Recipe, steps: int, images: int) -> Recipe:
    """Return the recipe with a length, and everything that follows from it."""
    steps = min(steps, _MOST_STEPS)
    every = max(1, steps // _EVALUATIONS)
    return replace(
        recipe,
        steps=steps,
        auxiliary_steps=round(_AUXILIARY_SHARE * steps) if recipe.head == "atss" else 0,
        warmup_steps=min(max(5, steps // 20), steps // 2),
        ema_momentum=min(0.1, max(1e-3, 20 / steps)),
        ema_warmup=max(1, steps // 10),
        checkpoint_every=min(100, every),
        evaluate_every=every,
        evaluate_images=min(max(images, _LEAST_EVALUATED), 200),
    )


def _canvas(dataset: AnnotatedDataset, detector: Detector) -> tuple[int, int]:
    """Return the model's canvas, or one as small as the largest image needs, in multiples of 64."""
    chosen = dataset.images[:: max(1, len(dataset.images) // 20)]
    sizes = np.array([sorted(image_size(Path(image)), reverse=True) for image in chosen])
    longest, shortest = (int(-(-_ENLARGED * side // ROOT) * ROOT) for side in sizes.max(axis=0))
    own = detector.canvas if isinstance(detector.canvas, tuple) else (longest, shortest)
    return min(own[0], longest), min(own[1], shortest)


def _seconds_per_step(recipe: Recipe) -> float:
    """Return the mean time of a step on this machine, from a trial that is thrown away."""
    trainer, samples, _ = set_up(recipe)
    times = []
    for step in range(4):
        started = time.perf_counter()
        trainer.update(step, [samples[step * recipe.batch + turn] for turn in range(recipe.batch)])
        times.append(time.perf_counter() - started)
    # Other programs only make a step slower. The length is planned again as the run goes on.
    return min(times[1:]) * _slower(recipe, 0.0)


def _seconds_per_image(detector: Detector, dataset: AnnotatedDataset, recipe: Recipe) -> float:
    tokenizer = detector.tokenizer(recipe.evaluate_budget, recipe.canvas)
    detector(dataset.images[0], tokenizer=tokenizer)
    started = time.perf_counter()
    detector(dataset.images[0], tokenizer=tokenizer)
    return time.perf_counter() - started


def _validation_part(recipe: Recipe) -> AnnotatedDataset:
    """Return all validation images of a recipe, at most 500."""
    images = open_annotated(recipe.validation or recipe.data)
    indices: Sequence[int] = range(len(images.images))
    if recipe.held_out_file:
        apart = set(read_lines(Path(recipe.held_out_file)))
        indices = [index for index in indices if str(images.images[index]) in apart]
    step = -(-len(indices) // _FINAL_IMAGES)
    part = Subset(images, tuple(indices[::step]))
    return of_classes(part, recipe.classes) if recipe.classes else part


def _report(detector: Detector, images: AnnotatedDataset, recipe: Recipe, folder: Path) -> Evaluation:
    """Evaluate a detector and write the report with pictures."""
    from vgtok.show.report import write_report

    rules = protocol_for(None, images.name, None)
    tokenizer = detector.tokenizer(recipe.evaluate_budget)
    ran = run_detector(detector, images, tokenizer, rules.max_detections)
    scored = apply_protocol(images, ran.detections, rules)
    result = evaluate_scored(images.name, scored, len(ran.detections), rules)
    origin = {
        "source": recipe.validation or f"{APART_FILE}: images kept apart",
        "model": "finetuned",
        "head": detector.head,
        "budget": recipe.evaluate_budget,
        **ran.to_dict(),
    }
    write_report(result, find_mistakes(scored, rules.max_detections), images.images, folder, origin)
    return result
