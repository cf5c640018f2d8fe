"""The optimizer, its learning-rate schedule, the moving average of the weights, and the training precision."""

import math
import re
from typing import Literal

import torch
from torch import Tensor

from vgtok.detect.model import CoDetr
from vgtok.train.recipe import Recipe


def best_precision() -> Literal["fp32", "bf16"]:
    """Return bf16 where the hardware multiplies bf16 matrices, else fp32."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def make_optimizer(model: CoDetr, recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW with a parameter group per encoder depth; one-dimensional parameters get no weight decay.

    The `scale` of a group is a factor on the learning rate.
    """
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        key = (recipe.layer_decay ** _depth_below(name, model), parameter.ndim > 1)
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": members, "scale": scale, "weight_decay": recipe.weight_decay if decayed else 0.0}
            for (scale, decayed), members in groups.items()
        ],
        lr=recipe.learning_rate,
        fused=True,
    )


def _depth_below(name: str, model: CoDetr) -> int:
    """Return the layers between a parameter and the head: n - i for block i of n, n + 1 for the embedding."""
    depth = len(model.encoder.blocks)
    if match := _BLOCK.match(name):
        return depth - int(match[1])
    # The fusion starts from zero, so it gets the learning rate of the head.
    if name.startswith("encoder.embedding.") and not name.startswith("encoder.embedding.fusion."):
        return depth + 1
    return 0


def set_learning_rate(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int, steps: int) -> float:
    """Set the learning rate of every group at a step, counted from 0; return that of the head."""
    rate = recipe.learning_rate * schedule_factor(recipe, step, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    return rate


def schedule_factor(recipe: Recipe, step: int, steps: int) -> float:
    """Return the share of the peak learning rate at a step: linear warmup, then cosine or constant with a decay."""
    if step < recipe.warmup_steps:
        return recipe.warmup_start + (1 - recipe.warmup_start) * step / recipe.warmup_steps
    if recipe.schedule == "constant":
        # A square-root decay keeps more of what was learned at the peak rate than a linear one.
        share = max(0.0, 1 - (steps - step) / recipe.decay_steps) if recipe.decay_steps else 0.0
        return recipe.final_rate + (1 - recipe.final_rate) * (1 - math.sqrt(share))
    share = min(1.0, (step - recipe.warmup_steps) / max(1, steps - recipe.warmup_steps))
    return recipe.final_rate + (1 - recipe.final_rate) * 0.5 * (1 + math.cos(math.pi * share))


class ModelEma:
    """Exponential moving average of a model's tensors, with a faster average in the first steps."""

    def __init__(self, tensors: dict[str, Tensor], recipe: Recipe) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.momentum, self.warmup = recipe.ema_momentum, recipe.ema_warmup

    def update(self, tensors: dict[str, Tensor], step: int) -> None:
        """Update the average with the tensors after a step, counted from 0."""
        extra = math.exp(-(1 + step) / self.warmup) if self.warmup else 0.0
        weight = (1 - self.momentum) * extra + self.momentum
        torch._foreach_lerp_(list(self.tensors.values()), [tensors[name].detach() for name in self.tensors], weight)
