"""Every family of transformers: its own output at a budget of 1, its own types and shapes below, restored after."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import vgtok
from tests.hosts.outputs import compare, tensors
from tests.hosts.small_hosts import CASES, Case, randomized
from vgtok.hosts import find_host

EVERY = [(name, size) for name, case in CASES.items() for size in case.sizes]


def total(output: Any) -> Tensor:
    """A number every floating output has a part in."""
    return torch.stack([t.float().square().mean() for _, t in tensors(output) if t.is_floating_point()]).sum()


def reached(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(("name", "size"), EVERY)
@torch.no_grad()
def test_exact_at_all_tokens_same_shapes_below_and_restored(name: str, size: tuple[int, int]) -> None:
    case = CASES[name]
    model, inputs = randomized(case.build()), case.inputs(size)
    weights = copy.deepcopy(model.state_dict())
    expected = model(**inputs)
    assert vgtok.wrap(model, budget=1.0) is model
    compare(model(**inputs), expected, 1e-4)
    model.vgtok.budget = 0.4
    fewer = model(**inputs)
    compare(fewer, expected, float("inf"))
    changes = [(a - dict(tensors(expected))[path]).abs().max() for path, a in tensors(fewer) if a.is_floating_point()]
    assert max(changes) > 1e-3
    assert vgtok.unwrap(model) is model
    compare(model(**inputs), expected, 0)
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())
    assert not hasattr(model, "vgtok")


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_hidden_states_stand_on_the_hosts_own_grid_and_tuples_are_given(name: str) -> None:
    case = CASES[name]
    model, inputs = randomized(case.build()), case.inputs(case.sizes[0])
    expected = model(**inputs, output_hidden_states=True)
    flat = model(**inputs, return_dict=False)
    vgtok.wrap(model, budget=1.0)
    compare(model(**inputs, output_hidden_states=True), expected, 1e-4)
    compare(model(**inputs, return_dict=False), flat, 1e-4)
    model.vgtok.budget = 0.3
    compare(model(**inputs, output_hidden_states=True), expected, float("inf"))


@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_every_parameter_that_had_one(name: str) -> None:
    case = CASES[name]
    model, inputs = randomized(case.build()), case.inputs(case.sizes[0])
    total(model(**inputs)).backward()
    expected = reached(model)
    model.zero_grad()
    vgtok.wrap(model, budget=0.4)
    total(model(**inputs)).backward()
    assert reached(model) == expected
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", CASES)
def test_gradients_at_all_tokens_are_the_hosts(name: str) -> None:
    case = CASES[name]
    model, inputs = randomized(case.build()), case.inputs(case.sizes[-1])
    total(model(**inputs)).backward()
    expected = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    vgtok.wrap(model, budget=1.0)
    total(model(**inputs)).backward()
    for key, gradient in expected.items():
        found = dict(model.named_parameters())[key].grad
        assert (found - gradient).abs().max() <= 1e-3 * gradient.abs().max() + 1e-5, key


@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
@torch.no_grad()
def test_a_compiled_model_gives_the_same(name: str) -> None:
    case = CASES[name]
    # The backbone: what lies around it is the host's alone. `vgtok bench wrap --compile` compiles whole detectors.
    model, inputs = find_host(randomized(case.build()))[0], case.inputs(case.sizes[0])
    inputs.pop("input_ids", None)
    vgtok.wrap(model, budget=0.4)
    expected = model(**inputs)
    torch.compiler.reset()
    compare(torch.compile(model, backend="aot_eager")(**inputs), expected, 1e-4)


@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
def test_what_is_saved_of_a_wrapped_model_is_the_model(name: str, tmp_path: Path) -> None:
    model = randomized(CASES[name].build())
    model.save_pretrained(tmp_path / "plain")
    vgtok.wrap(model, budget=0.4).save_pretrained(tmp_path / "wrapped")  # type: ignore[operator]
    assert saved(tmp_path / "wrapped") == saved(tmp_path / "plain")


def saved(folder: Path) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The configuration, and the shape of every tensor."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    return json.loads((folder / "config.json").read_text()), shapes


@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
def test_raw_pixels_are_refused(name: str) -> None:
    case: Case = CASES[name]
    model, inputs = vgtok.wrap(randomized(case.build())), case.inputs(case.sizes[0])
    inputs["pixel_values"] = inputs["pixel_values"] * 127.5 + 127.5
    with pytest.raises(vgtok.InputError, match=r"pixel_values: values up to 2[0-9.]+ are not a normalized image"):
        model(**inputs)
