"""The loop: lessons in, updates, checkpoints and reports out; on one process or many, by accelerate.

Every forward pass has random numbers of its own, and gradients are averaged over processes once per step. So one
process and several give the same update for the same lessons, and a run that was stopped, even killed, goes on as if
it had not been.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import Tensor

from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.data.sequences import kept_apart
from vgtok.detect.model import CoDetr
from vgtok.detect.training import LossKinds
from vgtok.encode.loading import check_state
from vgtok.errors import InputError, RunInterruptedError
from vgtok.files import locked, write_text
from vgtok.train.journal import Journal
from vgtok.train.lessons import Lesson, Lessons
from vgtok.train.model import initial_model
from vgtok.train.optimiser import Average, make_optimiser, set_rate
from vgtok.train.precision import best_precision
from vgtok.train.recipe import RECIPE_FILE, SYNTHETIC, Recipe, read_recipe
from vgtok.train.state import MODEL_FILE, State, load_state, newest, save_state
from vgtok.train.stopping import Stop, stopped_by_signals
from vgtok.train.validation import score, validation_images

_EVALUATION = timedelta(hours=12)
"""What processes wait for each other at most: one of them scores all images while the others stand still."""

_CHANGEABLE = {
    "steps",
    "epochs",
    "auxiliary_steps",
    "decay",
    "precision",
    "checkpoint",
    "keep",
    "evaluate",
    "evaluate_images",
    "evaluate_budget",
}
"""Settings a run may be resumed with other values of: how long it is, how it is computed, saved and watched."""


@dataclass(frozen=True)
class Material:
    """What a run learns from and what it is scored on; None stands for rendered scenes."""

    dataset: AnnotatedDataset | None
    training: Sequence[int]
    held_out: Sequence[int]
    names: tuple[str, ...]


def train(recipe: Recipe, run: Path) -> Path | None:
    """Follow a recipe in a folder of its own, from its last checkpoint where there is one; returns the last one.

    Of several processes all but the first return nothing.
    """
    precision = best_precision() if recipe.precision == "auto" else recipe.precision
    accelerator = Accelerator(
        mixed_precision="bf16" if precision == "bf16" else "no",
        kwargs_handlers=[InitProcessGroupKwargs(timeout=_EVALUATION)],
    )
    material = _material(recipe)
    steps = recipe.steps or math.ceil(recipe.epochs * len(material.training) / recipe.batch)
    if steps < 1:
        raise InputError("steps: neither steps nor epochs say how long to train; use --set steps=1000")
    passes = recipe.batch // recipe.images_per_pass
    if passes % accelerator.num_processes:
        raise InputError(
            f"batch: {passes} passes of {recipe.images_per_pass} images do not divide among "
            f"{accelerator.num_processes} processes"
        )
    # Of several processes the first is the one that writes.
    with locked(run / ".vgtok-lock", run) if accelerator.is_main_process else nullcontext():
        return _train(recipe, run, accelerator, material, steps)


def _train(recipe: Recipe, run: Path, accelerator: Accelerator, material: Material, steps: int) -> Path | None:
    """Follow a recipe for so many steps in a folder that no other run writes to."""
    _refuse_another_recipe(recipe, run)
    set_seed(recipe.seed)
    model = initial_model(recipe, material.names).to(accelerator.device)
    optimiser = make_optimiser(model, recipe)
    average = Average(model.state_dict(), recipe)
    step, seconds = 0, 0.0
    folder = newest(run) or (Path(recipe.branch) if recipe.branch else None)
    if folder is not None:
        state = load_state(folder)
        check_state(state.model, model, str(folder))
        step, seconds = state.step, state.seconds
        model.load_state_dict(state.model)
        average.tensors = {name: tensor.to(accelerator.device) for name, tensor in state.average.items()}
        # A checkpoint kept for good has none: a branch of it starts with fresh moments.
        if state.optimiser:
            optimiser.load_state_dict(state.optimiser)
    lessons = Lessons(recipe, material.names, material.dataset, material.training)
    trainer = Trainer(recipe, accelerator, model, optimiser, average, steps, Stop())
    if not accelerator.is_main_process:
        with stopped_by_signals(trainer.stop), closing(lessons.ahead(trainer.numbers(step))) as queue:
            _follow(trainer, queue, step)
        return None
    for name, document in ((RECIPE_FILE, recipe.to_dict()), (MODEL_FILE, model.config.to_dict())):
        write_text(run / name, json.dumps(document, indent=1) + "\n")
    images = validation_images(recipe, run, material.dataset, material.held_out) if recipe.evaluate else None
    with (
        Journal(run, step, steps) as journal,
        stopped_by_signals(trainer.stop),
        closing(lessons.ahead(trainer.numbers(step))) as queue,
    ):
        if recipe.evaluate and images is None:
            journal.say("nothing is scored: name images with --set validation=visdrone:DIR or --set held_out=48")
        return _lead(trainer, queue, images, journal, run, step, seconds)


@dataclass
class Trainer:
    """A model in training with everything an update needs."""

    recipe: Recipe
    accelerator: Accelerator
    model: CoDetr
    optimiser: torch.optim.AdamW
    average: Average
    steps: int
    stop: Stop
    stopping: bool = False

    def numbers(self, step: int) -> list[int]:
        """The lessons of this process from `step` to the end."""
        per, first = self.recipe.batch // self.accelerator.num_processes, self.accelerator.process_index
        return [at * self.recipe.batch + first * per + turn for at in range(step, self.steps) for turn in range(per)]

    def update(self, step: int, lessons: Sequence[Lesson]) -> dict[str, float]:
        """One step on the lessons of this process; returns its losses by part, their sum, the norm and the rate."""
        self.model.train()
        rate = set_rate(self.optimiser, self.recipe, step, self.steps)
        kinds: LossKinds = "auxiliary" if step < self.recipe.auxiliary_steps else "all"
        parts = self.gradients(lessons, kinds)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip))
        loss = parts["loss"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            numbers = ", ".join(str(lesson.number) for lesson in lessons)
            raise InputError(
                f"loss: {loss} with gradients of norm {norm} at step {step}, lessons {numbers}; nothing was updated "
                "and the last checkpoint is intact. Lower --set rate, or use --set precision=fp32"
            )
        self.optimiser.step()
        self.average.update(self.model.state_dict(), step)
        return {**parts, "norm": norm, "rate": rate}

    def gradients(self, lessons: Sequence[Lesson], kinds: LossKinds) -> dict[str, float]:
        """Leave the mean gradient over the passes of all processes; returns their mean `loss`.

        Beside it are the losses by part of this process's own passes.
        """
        self.optimiser.zero_grad()
        for parameter in self.model.reached(kinds):
            # Zero, never none: what a lesson leaves out must still add up over processes.
            parameter.grad = torch.zeros_like(parameter)
        sums: dict[str, float] = {}
        loss = torch.zeros((), device=self.accelerator.device)
        size = self.recipe.images_per_pass
        passes = [lessons[first : first + size] for first in range(0, len(lessons), size)]
        for members in passes:
            # What noise and samples the losses draw follows from the lessons, wherever they are learnt.
            torch.manual_seed(int(np.random.default_rng((self.recipe.seed, 3, members[0].number)).integers(2**63)))
            with self.accelerator.autocast():
                losses = self.model.loss(
                    [lesson.frame.to(self.accelerator.device) for lesson in members],
                    [lesson.tokens for lesson in members],
                    [{"boxes": lesson.boxes, "labels": lesson.labels} for lesson in members],
                    [lesson.crop for lesson in members],
                    self.recipe.crop_queries or None,
                    kinds,
                )
            total = torch.stack([value.float() for value in losses.values()]).sum() * size / self.recipe.batch
            torch.autograd.backward(total)
            loss += total.detach()
            for name, value in losses.items():
                part, *_, kind = name.split("/")
                sums[f"{part}/{kind}"] = sums.get(f"{part}/{kind}", 0.0) + float(value.detach()) / len(passes)
        self._add_up([p.grad for p in self.model.parameters() if p.grad is not None])
        # Processes stop after the same step, whichever of them was asked to, and none that was asked later.
        loss, asked = self.accelerator.reduce(torch.stack([loss, loss.new_tensor(self.stop.asked)]), "sum").tolist()
        self.stopping = asked > 0
        return {**sums, "loss": loss}

    def _add_up(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients over processes in place, as one message."""
        if self.accelerator.num_processes == 1:
            return
        flat = self.accelerator.reduce(torch.cat([gradient.flatten() for gradient in gradients]), "sum")
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def state(self, step: int, seconds: float) -> State:
        """What a checkpoint after `step` steps holds."""
        return State(step, seconds, self.model.state_dict(), self.average.tensors, self.optimiser.state_dict())


def _lead(
    trainer: Trainer,
    queue: Iterator[Lesson],
    images: AnnotatedDataset | None,
    journal: Journal,
    run: Path,
    step: int,
    seconds: float,
) -> Path:
    """Train as the process that reports, saves and evaluates."""
    recipe, steps = trainer.recipe, trainer.steps
    per = recipe.batch // trainer.accelerator.num_processes
    while step < steps and not trainer.stopping:
        started = time.perf_counter()
        taken = [next(queue) for _ in range(per)]
        report = trainer.update(step, taken)
        step += 1
        seconds += time.perf_counter() - started
        journal.write(
            {
                "step": step,
                "lessons": step * recipe.batch,
                "seconds": round(seconds, 2),
                "objects": sum(len(lesson.labels) for lesson in taken),
                "tokens": sum(len(lesson.tokens) for lesson in taken),
                **{name: float(f"{value:.7g}") for name, value in report.items()},
            }
        )
        journal.advance(step, report["loss"])
        if images is not None and (step % recipe.evaluate == 0 or step == steps):
            with journal.paused():
                scores = score(trainer.model.config, trainer.average.tensors, recipe, images)
            journal.write({"step": step, "lessons": step * recipe.batch, **scores})
            journal.say(f"step {step}: " + ", ".join(f"{name} {value:.2f}" for name, value in scores.items()))
        if step % recipe.checkpoint == 0 or step == steps or trainer.stopping:
            save_state(run, trainer.state(step, seconds), recipe.keep)
    if trainer.stopping and step < steps:
        raise RunInterruptedError(f"{run}: stopped at step {step} of {steps} and saved; run the same command to resume")
    folder = newest(run)
    assert folder is not None
    return folder


def _follow(trainer: Trainer, queue: Iterator[Lesson], step: int) -> None:
    """Train as one of the other processes: the same steps, nothing reported."""
    per = trainer.recipe.batch // trainer.accelerator.num_processes
    for at in range(step, trainer.steps):
        trainer.update(at, [next(queue) for _ in range(per)])
        if trainer.stopping:
            return


def _material(recipe: Recipe) -> Material:
    """Open the data and set some of it apart where validation has none of its own."""
    if recipe.data == SYNTHETIC:
        return Material(None, (), (), recipe.classes)
    if not recipe.data:
        raise InputError("data: this recipe needs a data set; use --set data=visdrone:DIR or another")
    dataset = open_annotated(recipe.data)
    count = len(dataset.images)
    apart = kept_apart([Path(image) for image in dataset.images], recipe.held_out)
    training = sorted(set(range(count)) - set(apart))
    return Material(dataset, training, apart, recipe.classes or dataset.names)


def _refuse_another_recipe(recipe: Recipe, run: Path) -> None:
    """A folder holds one run: a checkpoint of other settings is not gone on with."""
    if newest(run) is None:
        return
    if not (run / RECIPE_FILE).is_file():
        raise InputError(
            f"{run}: holds checkpoints and no {RECIPE_FILE} that says how they came about; choose another --out, or "
            "delete it"
        )
    stored = read_recipe(run / RECIPE_FILE).to_dict()
    wanted = recipe.to_dict()
    differing = [name for name in wanted if stored[name] != wanted[name] and name not in _CHANGEABLE]
    if differing:
        listed = ", ".join(f"{name} {_shown(stored[name])} there, {_shown(wanted[name])} here" for name in differing)
        raise InputError(f"{run}: holds a run with other settings ({listed}); choose another --out, or delete it")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value) or "none"
