"""The training loop, on one process or several, with accelerate.

A recipe and a folder go in; the folder holds checkpoints and metrics afterwards, and is where a run resumes from.
"""

import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import Tensor

from vgtok.data.dataset import AnnotatedDataset
from vgtok.detect.model import CoDetr
from vgtok.detect.training import LossKinds
from vgtok.encode.loading import check_state
from vgtok.errors import InputError, RunInterruptedError
from vgtok.files import locked, write_text
from vgtok.parallel import default_workers
from vgtok.train.model import ModelEma, best_precision, initial_model, make_optimizer, set_learning_rate
from vgtok.train.recipe import RECIPE_FILE, Recipe, read_recipe
from vgtok.train.run_folder import (
    MODEL_FILE,
    Checkpoint,
    RunLog,
    evaluations_since_best,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from vgtok.train.samples import TrainingSample, TrainingSamples
from vgtok.train.validation import TrainingData, open_data, score, validation_images


@dataclass
class Stop:
    """Whether the process was asked to stop."""

    requested: bool = False


@contextmanager
def catch_signals(stop: Stop) -> Iterator[None]:
    """Record SIGTERM and the first Ctrl-C in `stop`; a second Ctrl-C has its usual effect.

    Launchers of several processes send SIGTERM more than once. Python delivers signals to the main thread only, so a
    run in another thread is not stopped this way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.requested = True
        signal.signal(signal.SIGINT, usual[signal.SIGINT])

    for number in usual:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


_TIMEOUT = timedelta(hours=12)
"""How long processes wait for each other: at the end of an evaluation, for the one with the largest images."""

_GPU_LOADERS = 4

CHANGEABLE = {
    "steps",
    "epochs",
    "auxiliary_steps",
    "decay_steps",
    "precision",
    "images_per_pass",
    "loaders",
    "checkpoint_every",
    "keep_every",
    "evaluate_every",
    "evaluate_images",
    "evaluate_budget",
    "patience",
}
"""Settings that may change when a run is resumed: its length, precision, saving and evaluation."""


def train(recipe: Recipe, run: Path, until: int | None = None) -> Path | None:
    """Train a recipe in the folder `run`, resuming from its last checkpoint; return the final checkpoint.

    With `until`, stop and save after that step of the recipe. All processes but the main one return None.
    """
    trainer, samples, data = set_up(recipe)
    trainer.until = until
    # Only the main process writes, so only it takes the lock.
    with locked(run / ".vgtok-lock", run) if trainer.accelerator.is_main_process else nullcontext():
        _check_recipe(recipe, run)
        return _train(trainer, samples, data, run)


def _train(trainer: "Trainer", samples: TrainingSamples, data: TrainingData, run: Path) -> Path | None:
    """Train in a folder that no other run writes to."""
    recipe, model, accelerator, steps = trainer.recipe, trainer.model, trainer.accelerator, trainer.steps
    step, seconds = 0, 0.0
    folder = latest_checkpoint(run) or (Path(recipe.branch) if recipe.branch else None)
    if folder is not None:
        checkpoint = load_checkpoint(folder)
        check_state(checkpoint.model, model, str(folder))
        step, seconds = checkpoint.step, checkpoint.seconds
        model.load_state_dict(checkpoint.model)
        trainer.ema.tensors = {name: tensor.to(accelerator.device) for name, tensor in checkpoint.ema.items()}
        # Permanent checkpoints have no optimizer state; a branch from one starts with new moments.
        if checkpoint.optimizer:
            trainer.optimizer.load_state_dict(checkpoint.optimizer)
    if _out_of_patience(recipe, run):
        return latest_checkpoint(run) if accelerator.is_main_process else None
    images = None
    if recipe.evaluate_every:
        # The main process first: it renders the scenes that the others only read.
        with accelerator.main_process_first():
            images = validation_images(recipe, run, data.dataset, data.held_out)
    queue = samples.prefetch(trainer.sample_numbers(step), trainer.loaders)
    if not accelerator.is_main_process:
        with catch_signals(trainer.stop), closing(queue):
            _run_worker(trainer, queue, images, step)
        return None
    for name, document in ((RECIPE_FILE, recipe.to_dict()), (MODEL_FILE, model.config.to_dict())):
        write_text(run / name, json.dumps(document, indent=1) + "\n")
    with RunLog(run, step, steps) as log, catch_signals(trainer.stop), closing(queue):
        if recipe.evaluate_every and images is None:
            log.print("nothing is evaluated: name images with --set validation=visdrone:DIR or --set held_out=48")
        return _run_main(trainer, queue, images, log, run, step, seconds)


def set_up(recipe: Recipe) -> "tuple[Trainer, TrainingSamples, TrainingData]":
    """Return the trainer of a recipe at step 0, its samples and its data."""
    precision = best_precision() if recipe.precision == "auto" else recipe.precision
    # An earlier run of this process may have had another precision, which accelerate would hold on to.
    AcceleratorState._reset_state()
    accelerator = Accelerator(
        mixed_precision="bf16" if precision == "bf16" else "no",
        kwargs_handlers=[InitProcessGroupKwargs(timeout=_TIMEOUT)],
    )
    data = open_data(recipe)
    steps = recipe.steps or math.ceil(recipe.epochs * len(data.training) / recipe.batch)
    if steps < 1:
        raise InputError("steps: neither steps nor epochs is set; use --set steps=1000")
    size = recipe.images_per_pass or 1
    if recipe.batch // size % accelerator.num_processes:
        raise InputError(
            f"batch: {recipe.batch // size} passes of {size} images do not divide among "
            f"{accelerator.num_processes} processes"
        )
    set_seed(recipe.seed)
    model = initial_model(recipe, data.names).to(accelerator.device)
    ema = ModelEma(model.state_dict(), recipe)
    trainer = Trainer(recipe, accelerator, model, make_optimizer(model, recipe), ema, steps, Stop())
    return trainer, TrainingSamples(recipe, data.names, data.dataset, data.training), data


@dataclass
class Trainer:
    """A model in training, and everything an update needs."""

    recipe: Recipe
    accelerator: Accelerator
    model: CoDetr
    optimizer: torch.optim.AdamW
    ema: ModelEma
    steps: int
    stop: Stop
    stopping: bool = False
    until: int | None = None

    @property
    def end(self) -> int:
        """The step after which this run stops: the last one, or an earlier one."""
        return self.steps if self.until is None else min(self.until, self.steps)

    @property
    def per_process(self) -> int:
        """Samples per step of this process."""
        return self.recipe.batch // int(self.accelerator.num_processes)

    @property
    def images_per_pass(self) -> int:
        """Samples per forward pass: by default all of a step on a GPU, which a single one does not fill."""
        on_cpu = self.accelerator.device.type == "cpu"
        return self.recipe.images_per_pass or (1 if on_cpu else self.per_process)

    @property
    def loaders(self) -> int:
        """Processes that prepare samples; 0 for a thread of this one, which keeps up with a CPU."""
        on_cpu = self.accelerator.device.type == "cpu"
        cores = default_workers() // int(self.accelerator.num_processes)
        return self.recipe.loaders or (0 if on_cpu else max(1, min(_GPU_LOADERS, cores)))

    def sample_numbers(self, step: int) -> list[int]:
        """Return the numbers of the samples of this process from `step` to where it stops."""
        per_process, first = self.per_process, self.accelerator.process_index
        return [
            at * self.recipe.batch + first * per_process + n for at in range(step, self.end) for n in range(per_process)
        ]

    def update(self, step: int, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Train one step on the samples of this process; return losses, gradient norm and learning rate."""
        self.model.train()
        rate = set_learning_rate(self.optimizer, self.recipe, step, self.steps)
        kinds: LossKinds = "auxiliary" if step < self.recipe.auxiliary_steps else "all"
        parts = self.compute_gradients(samples, kinds)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.max_grad_norm))
        loss = parts["loss"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            numbers = ", ".join(str(sample.number) for sample in samples)
            raise InputError(
                f"loss: {loss} with gradients of norm {norm} at step {step}, samples {numbers}; nothing was updated "
                "and the last checkpoint is intact. Lower --set learning_rate, or use --set precision=fp32"
            )
        self.optimizer.step()
        self.ema.update(self.model.state_dict(), step)
        return {**parts, "grad_norm": norm, "learning_rate": rate}

    def compute_gradients(self, samples: Sequence[TrainingSample], kinds: LossKinds) -> dict[str, float]:
        """Set the gradients to their mean over the passes of all processes; return the mean `loss`.

        The losses by part are returned too, as means over the passes of this process.
        """
        self.optimizer.zero_grad()
        for parameter in self.model.reached(kinds):
            # Zero instead of None: a parameter that a sample does not use is still summed over processes.
            parameter.grad = torch.zeros_like(parameter)
        sums: dict[str, float] = {}
        loss = torch.zeros((), device=self.accelerator.device)
        size = self.images_per_pass
        passes = [samples[first : first + size] for first in range(0, len(samples), size)]
        for members in passes:
            # Seed the noise of the losses by sample, so that it does not depend on the number of processes.
            torch.manual_seed(int(np.random.default_rng((self.recipe.seed, 3, members[0].number)).integers(2**63)))
            with self.accelerator.autocast():
                losses = self.model.loss(
                    [sample.image.to(self.accelerator.device) for sample in members],
                    [sample.tokens for sample in members],
                    [{"boxes": sample.boxes, "labels": sample.labels} for sample in members],
                    [sample.crop for sample in members],
                    self.recipe.crop_queries or None,
                    kinds,
                    self.recipe.sparse_head,
                )
            total = torch.stack([value.float() for value in losses.values()]).sum() * size / self.recipe.batch
            torch.autograd.backward(total)
            loss += total.detach()
            for name, value in losses.items():
                part, *_, kind = name.split("/")
                sums[f"{part}/{kind}"] = sums.get(f"{part}/{kind}", 0.0) + float(value.detach()) / len(passes)
        self._all_reduce([p.grad for p in self.model.parameters() if p.grad is not None])
        # All processes stop after the same step, whichever of them got the signal.
        loss, requested = self.accelerator.reduce(
            torch.stack([loss, loss.new_tensor(self.stop.requested)]), "sum"
        ).tolist()
        self.stopping = requested > 0
        return {**sums, "loss": loss}

    def _all_reduce(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients over processes in place, in one message."""
        if self.accelerator.num_processes == 1:
            return
        flat = self.accelerator.reduce(torch.cat([gradient.flatten() for gradient in gradients]), "sum")
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def evaluates_after(self, step: int) -> bool:
        """Return whether the model is evaluated after so many steps."""
        return step % self.recipe.evaluate_every == 0 or step == self.steps

    def evaluate(self, images: AnnotatedDataset) -> dict[str, float]:
        """Return the scores of the averaged model in the main process; all processes take part."""
        return score(self.model.config, self.ema.tensors, self.recipe, images, self.accelerator)

    def checkpoint(self, step: int, seconds: float) -> Checkpoint:
        """Return a checkpoint after `step` steps."""
        return Checkpoint(step, seconds, self.model.state_dict(), self.ema.tensors, self.optimizer.state_dict())


def _run_main(
    trainer: Trainer,
    queue: Iterator[TrainingSample],
    images: AnnotatedDataset | None,
    log: RunLog,
    run: Path,
    step: int,
    seconds: float,
) -> Path:
    """Train in the main process, which also logs, saves and evaluates."""
    recipe, steps = trainer.recipe, trainer.steps
    ended = False
    while step < trainer.end and not trainer.stopping:
        started = time.perf_counter()
        batch = [next(queue) for _ in range(trainer.per_process)]
        report = trainer.update(step, batch)
        step += 1
        seconds += time.perf_counter() - started
        log.write(
            {
                "step": step,
                "samples": step * recipe.batch,
                "seconds": round(seconds, 2),
                "objects": sum(len(sample.labels) for sample in batch),
                "tokens": sum(len(sample.tokens) for sample in batch),
                **{name: float(f"{value:.7g}") for name, value in report.items()},
            }
        )
        log.advance(step, report["loss"])
        if images is not None and trainer.evaluates_after(step):
            with log.paused():
                scores = trainer.evaluate(images)
            log.write({"step": step, "samples": step * recipe.batch, **scores})
            log.print(f"step {step}: " + ", ".join(f"{name} {value:.2f}" for name, value in scores.items()))
            save_checkpoint(run, trainer.checkpoint(step, seconds), recipe.keep_every)
            # All processes take one more step, at the end of which they agree to stop.
            ended = _out_of_patience(recipe, run)
            trainer.stop.requested |= ended
        elif step % recipe.checkpoint_every == 0 or step == trainer.end or trainer.stopping:
            save_checkpoint(run, trainer.checkpoint(step, seconds), recipe.keep_every)
    if ended:
        log.print(f"no higher AP in {recipe.patience} evaluations: training ends at step {step} of {steps}")
    elif trainer.stopping and step < trainer.end:
        raise RunInterruptedError(f"{run}: stopped at step {step} of {steps} and saved; run the same command to resume")
    folder = latest_checkpoint(run)
    assert folder is not None
    return folder


def _out_of_patience(recipe: Recipe, run: Path) -> bool:
    """Return whether AP has stopped rising."""
    return bool(recipe.patience) and evaluations_since_best(run) >= recipe.patience


def _run_worker(trainer: Trainer, queue: Iterator[TrainingSample], images: AnnotatedDataset | None, step: int) -> None:
    """Train in one of the other processes, and detect in its share of the validation images."""
    for at in range(step, trainer.end):
        trainer.update(at, [next(queue) for _ in range(trainer.per_process)])
        if images is not None and trainer.evaluates_after(at + 1):
            trainer.evaluate(images)
        if trainer.stopping:
            return


def _check_recipe(recipe: Recipe, run: Path) -> None:
    """Raise if the folder holds a run with other settings, or checkpoints without a recipe."""
    if latest_checkpoint(run) is None:
        return
    if not (run / RECIPE_FILE).is_file():
        raise InputError(f"{run}: holds checkpoints but no {RECIPE_FILE}; choose another --out, or delete it")
    stored = read_recipe(run / RECIPE_FILE).to_dict()
    wanted = recipe.to_dict()
    differing = [name for name in wanted if stored[name] != wanted[name] and name not in CHANGEABLE]
    if differing:
        listed = ", ".join(f"{name} {_shown(stored[name])} there, {_shown(wanted[name])} here" for name in differing)
        raise InputError(f"{run}: holds a run with other settings ({listed}); choose another --out, or delete it")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value) or "none"
