"""What one training step costs on this machine, in each of the ways a recipe may take it.

Ways take turns, so that a busy machine slows all alike; weights are random, cost does not depend on them.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, get_args

import torch

from vgtok.data.synthetic import render_scene
from vgtok.detect.config import detector_configuration
from vgtok.detect.model import CoDetr
from vgtok.detect.training import LossKinds
from vgtok.encode.flops import default_threads
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.optimizer import best_precision

_SEED = 7
_TOGETHER = 4
"""Crops that share a forward pass, as in the recipe of the shipped model."""


@dataclass(frozen=True)
class StepRow:
    """One way of training: medians over the rounds, of a crop's share of a step.

    `ratio` is to the first row, fp32 with every loss and a pass for each crop. Processor time is what the crop would
    take on one quiet core.
    """

    precision: Literal["fp32", "bf16"]
    losses: LossKinds
    crops_per_pass: int
    seconds_per_crop: float
    processor_seconds_per_crop: float
    ratio: float


@dataclass(frozen=True)
class StepCost:
    """Every way, forward, backward and update, on rendered crops of `side` px."""

    config: str
    budget: float
    side: int
    tokens: int
    objects: int
    threads: int
    rows: tuple[StepRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)


def measure_step(config: str, side: int, budget: float, repeats: int) -> StepCost:
    """Train on one rendered crop of `side` px, alone and four together; the first round warms up and does not count."""
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(config))
    scene = render_scene(_SEED, side, side)
    frame = torch.from_numpy(scene.pixels).permute(2, 0, 1).contiguous()
    tokens = Tokenizer(budget=budget, canvas="native")(scene.pixels)
    kept = scene.labels < model.config.classes
    target = {"boxes": torch.from_numpy(scene.boxes[kept]), "labels": torch.from_numpy(scene.labels[kept])}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    kinds = get_args(LossKinds) if model.config.auxiliary else ("all",)
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16") if best_precision() == "bf16" else ("fp32",)
    ways = [(precision, losses, crops) for precision in precisions for losses in kinds for crops in (1, _TOGETHER)]

    def step(precision: str, losses: LossKinds, crops: int) -> None:
        optimiser.zero_grad()
        half = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()
        with half:
            found = model.loss([frame] * crops, [tokens] * crops, [target] * crops, kinds=losses)
        torch.autograd.backward(torch.stack([value.float() for value in found.values()]).sum())
        optimiser.step()

    rounds = [[_timed(step, *way) for way in ways] for _ in range(repeats + 1)][1:]
    rows: list[StepRow] = []
    for way, times in zip(ways, zip(*rounds, strict=True), strict=True):
        wall, processor = (median(values) / way[2] for values in zip(*times, strict=True))
        rows.append(StepRow(*way, wall, processor, wall / rows[0].seconds_per_crop if rows else 1.0))
    return StepCost(config, budget, side, len(tokens), int(kept.sum()), default_threads(), tuple(rows))


def _timed(step: Callable[..., None], *way: Any) -> tuple[float, float]:
    """Seconds and processor seconds of one step."""
    start, processor = time.perf_counter(), time.process_time()
    step(*way)
    return time.perf_counter() - start, time.process_time() - processor
