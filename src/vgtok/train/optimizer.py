"""The optimizer, the learning rate of a step, the running average, and the precision to compute in."""

import math
import re
from typing import Literal

import torch
from torch import Tensor

from vgtok.detect.model import CoDetr
from vgtok.train.recipe import Recipe


def best_precision() -> Literal["fp32", "bf16"]:
    """The faster of the two where matrices are multiplied."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def make_optimiser(model: CoDetr, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with a group for each depth of the encoder, biases and other one-dimensional parameters not decayed.

    `scale` of a group is what the rate of a step is multiplied by.
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
        lr=recipe.rate,
        fused=True,
    )


def _depth_below(name: str, model: CoDetr) -> int:
    """How many layers lie between a parameter and the head: block i of n is n - i below, the embedding n + 1."""
    depth = len(model.encoder.blocks)
    if match := _BLOCK.match(name):
        return depth - int(match[1])
    # The fusion starts from nothing, so it learns as fast as the head.
    if name.startswith("encoder.embedding.") and not name.startswith("encoder.embedding.fusion."):
        return depth + 1
    return 0


def set_rate(optimiser: torch.optim.Optimizer, recipe: Recipe, step: int, steps: int) -> float:
    """Give every group its rate at a step, counted from zero; returns the rate of the head."""
    rate = recipe.rate * rate_at(recipe, step, steps)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]
    return rate


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    """The share of the full rate at a step: a line up, then half a cosine down, or level and a short way down."""
    if step < recipe.warmup:
        return recipe.warmup_start + (1 - recipe.warmup_start) * step / recipe.warmup
    if recipe.schedule == "constant":
        # Fast at first and slow at the end keeps more of what the full rate learned than a line.
        share = max(0.0, 1 - (steps - step) / recipe.decay) if recipe.decay else 0.0
        return recipe.final_rate + (1 - recipe.final_rate) * (1 - math.sqrt(share))
    share = min(1.0, (step - recipe.warmup) / max(1, steps - recipe.warmup))
    return recipe.final_rate + (1 - recipe.final_rate) * 0.5 * (1 + math.cos(math.pi * share))


class Average:
    """A running average of a model's tensors, quick to follow at first and slow later."""

    def __init__(self, tensors: dict[str, Tensor], recipe: Recipe) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.momentum, self.warmup = recipe.average, recipe.average_warmup

    def update(self, tensors: dict[str, Tensor], step: int) -> None:
        """Move towards the tensors after a step, counted from zero."""
        fresh = math.exp(-(1 + step) / self.warmup) if self.warmup else 0.0
        weight = (1 - self.momentum) * fresh + self.momentum
        torch._foreach_lerp_(list(self.tensors.values()), [tensors[name].detach() for name in self.tensors], weight)
