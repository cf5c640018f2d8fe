"""The initial model of a run, its optimizer and learning rate, the running average, and the precision."""

import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from vgtok.detect.config import detector_configuration
from vgtok.detect.loading import find_detector
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import model_from_state
from vgtok.encode.embed import Fusion
from vgtok.encode.loading import load_weights
from vgtok.encode.precision import find_device, multiplies_bfloat16
from vgtok.errors import InputError
from vgtok.tokenize.geometry import NODE, ROOT
from vgtok.train.recipe import CONVERTED, DENSE, Recipe


def initial_model(recipe: Recipe, names: tuple[str, ...]) -> CoDetr:
    """Return a saved model, or a new one whose encoder may be loaded from a checkpoint."""
    if recipe.init_from:
        # Load to the CPU: on a GPU every process would take the first one.
        model = find_detector(_initial_weights(recipe, names)).model
        if model.config.names != names:
            raise InputError(
                f"init_from: {recipe.init_from} knows other classes than the data; convert it with --names"
            )
        return prepare_model(model, recipe)
    model = CoDetr(detector_configuration(recipe.detector, names=names, auxiliary=recipe.auxiliary))
    if recipe.encoder_weights:
        load_weights(model.encoder, _weights(recipe.encoder_weights), recipe.encoder_source)
    return model


def prepare_model(model: CoDetr, recipe: Recipe) -> CoDetr:
    """Return the model with every part the recipe trains; budgets below 1 add the fusion of coarse tokens.

    The fusion is initialized to zero, so predictions do not change. Training samples have no padded cells, so the
    trained model runs without them too.
    """
    config = model.config
    changes: dict[str, object] = {"grid_multiple": 1}
    state = model.state_dict()
    if min(recipe.budgets) < 1 and model.encoder.embedding.fusion is None:
        changes["fusion"] = (NODE,) if recipe.splitter == "single_pass" else (NODE, ROOT)
    config = replace(config, encoder_overrides={**config.encoder_overrides, **changes})
    if config.encoder_config() == model.encoder.config:
        return model
    if "fusion" in changes:
        fusion = Fusion(config.encoder_config()).state_dict()
        state |= {f"encoder.embedding.fusion.{name}": tensor for name, tensor in fusion.items()}
    return model_from_state(config, state, recipe.init_from)


def _initial_weights(recipe: Recipe, names: tuple[str, ...]) -> str:
    """Return the model to start from: as named, or of that name in the folder VGTOK_WEIGHTS."""
    folder = os.environ.get("VGTOK_WEIGHTS")
    if Path(recipe.init_from).exists():
        return recipe.init_from
    if folder is not None and (Path(folder) / recipe.init_from).exists():
        return str(Path(folder) / recipe.init_from)
    if recipe.init_from == CONVERTED:
        raise InputError(
            f"init_from: {recipe.name} starts from a released Co-DETR ViT-L checkpoint, which is not part of "
            "this package; convert one with "
            f"\"vgtok convert co-detr released.pth {CONVERTED} --names '{','.join(names)}'\", "
            "or name another model with --set init_from=MODEL"
        )
    if recipe.init_from == DENSE:
        raise InputError(
            f"init_from: {recipe.name} starts from the dense model; train it with 'vgtok train {DENSE} --out RUN' and "
            f"save it with 'vgtok convert run RUN {DENSE}', or name another model with --set init_from=MODEL"
        )
    return recipe.init_from


def _weights(name: str) -> Path:
    """Return a weights file: as named, or of that name in the folder VGTOK_WEIGHTS."""
    path = Path(name)
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not path.is_file() and not path.is_absolute() and folder is not None:
        path = Path(folder) / name
    if not path.is_file():
        raise InputError(
            f"encoder_weights: '{name}' is neither a file nor one in the folder VGTOK_WEIGHTS; "
            "--set encoder_weights= starts from random weights"
        )
    return path


def best_precision() -> Literal["fp32", "bf16"]:
    """Return bf16 where the hardware multiplies bf16 matrices, else fp32."""
    return "bf16" if multiplies_bfloat16(find_device("auto")) else "fp32"


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
