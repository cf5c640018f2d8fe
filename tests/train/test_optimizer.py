"""Rates, decay and the running average, against their formulas."""

import math

import pytest
import torch

from tests.detect.small_models import small_model
from vgtok.train.model import ModelEma, make_optimizer, schedule_factor, set_learning_rate

from .small import small_recipe


def test_every_parameter_is_in_one_group_with_its_decay() -> None:
    model, recipe = small_model(), small_recipe(layer_decay=0.8, weight_decay=0.01)
    optimizer = make_optimizer(model, recipe)
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    parameters = dict(model.named_parameters())
    assert len(found) == len(parameters) == sum(len(group["params"]) for group in optimizer.param_groups)
    depth = len(model.encoder.blocks)
    for name, parameter in parameters.items():
        group = found[id(parameter)]
        assert group["weight_decay"] == (0.01 if parameter.ndim > 1 else 0.0), name
        below = 0
        if name.startswith("encoder.blocks."):
            below = depth - int(name.split(".")[2])
        elif name.startswith("encoder.embedding.") and "fusion" not in name:
            below = depth + 1
        assert group["scale"] == pytest.approx(0.8**below), name


def test_the_rate_warms_up_and_falls_by_half_a_cosine() -> None:
    recipe = small_recipe(warmup_steps=10, warmup_start=0.01, final_rate=0.1, learning_rate=2.0)
    assert schedule_factor(recipe, 0, 110) == pytest.approx(0.01)
    assert schedule_factor(recipe, 10, 110) == pytest.approx(1.0)
    assert schedule_factor(recipe, 60, 110) == pytest.approx(0.55)
    assert schedule_factor(recipe, 110, 110) == pytest.approx(0.1)
    optimizer = torch.optim.AdamW([{"params": [torch.zeros(1)], "scale": 0.5}])
    assert set_learning_rate(optimizer, recipe, 60, 110) == pytest.approx(1.1)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.55)


def test_a_constant_rate_stays_until_it_decays() -> None:
    endless = small_recipe(schedule="constant", warmup_steps=10, warmup_start=0.0)
    assert [schedule_factor(endless, step, 100) for step in (5, 10, 99, 100_000)] == [0.5, 1.0, 1.0, 1.0]
    falling = small_recipe(schedule="constant", warmup_steps=10, decay_steps=16, final_rate=0.2)
    assert [schedule_factor(falling, step, 100) for step in (50, 84, 88, 93, 100)] == pytest.approx(
        [1.0, 1.0, 0.6, 0.2 + 0.8 * 0.25, 0.2]
    )


def test_the_average_follows_its_formula() -> None:
    recipe = small_recipe(ema_momentum=0.1, ema_warmup=4)
    values = [torch.tensor([float(n)]) for n in range(5)]
    average = ModelEma({"w": values[0]}, recipe)
    expected = 0.0
    for step, value in enumerate(values[1:]):
        average.update({"w": value}, step)
        weight = 0.9 * math.exp(-(1 + step) / 4) + 0.1
        expected += weight * (float(value) - expected)
    assert float(average.tensors["w"]) == pytest.approx(expected, rel=1e-6)
    assert float(values[0]) == 0.0
