"""A wrapped model renames its weights once, and notices everything that can happen to them."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgtok
from tests.hosts.test_wrapping import pixels, randomised, vit

IMAGES = pixels(128, 128, count=1)


def counted(model: Any) -> list[int]:
    """The number of tensors of every renaming from here on."""
    calls: list[int] = []
    host = model.vgtok.host

    def rename(state: Any, config: Any) -> dict[str, Tensor]:
        calls.append(len(state))
        renamed: dict[str, Tensor] = host.filter(state, config)
        return renamed

    model.vgtok.host = replace(host, filter=rename)
    return calls


@torch.no_grad()
def seen(model: Any) -> Tensor:
    features: Tensor = model(IMAGES).last_hidden_state
    return features


def test_weights_are_renamed_once_for_many_calls_without_gradients() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    calls = counted(model)
    first = seen(model)
    with torch.inference_mode():
        model(IMAGES)
    model.vgtok.budget = 1.0  # type: ignore[union-attr]
    seen(model)
    model.vgtok.budget = 0.5  # type: ignore[union-attr]
    assert torch.equal(seen(model), first)
    assert len(calls) == 1
    # Frozen, a model without gradients may also run where they are on.
    model.requires_grad_(False)
    assert torch.equal(model(IMAGES).last_hidden_state, first)
    assert len(calls) == 1


def test_where_gradients_flow_nothing_is_kept() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    seen(model)
    calls = counted(model)
    for _ in range(2):
        model.zero_grad()
        model(IMAGES).last_hidden_state.sum().backward()
        assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("pooler"))
    assert len(calls) == 2
    assert model.vgtok._kept is None  # type: ignore[union-attr]


def loaded(model: nn.Module) -> None:
    model.load_state_dict(randomised(vit()).state_dict())


def assigned(model: nn.Module) -> None:
    model.load_state_dict(randomised(vit()).state_dict(), assign=True)


def stepped(model: nn.Module, **settings: Any) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, **settings)
    model(IMAGES).last_hidden_state.square().sum().backward()
    optimiser.step()


def stepped_at_once(model: nn.Module) -> None:
    stepped(model, fused=True)


def scaled_in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def scaled_behind_autograd(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.5)


def query_of(model: nn.Module) -> nn.Parameter:
    [parameter] = [p for name, p in model.named_parameters() if ".0." in name and name.endswith("q_proj.weight")]
    return parameter


def one_row_behind_autograd(model: nn.Module) -> None:
    query_of(model).data[7] = 3.0


def one_column_behind_autograd(model: nn.Module) -> None:
    query_of(model).data[:, 7] = 3.0


def data_replaced(model: nn.Module) -> None:
    query_of(model).data = torch.full_like(query_of(model), 0.1)


def parameter_replaced(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(0.5 * module.weight.detach())


def rounded(model: nn.Module) -> None:
    model.bfloat16().float()


def doubled(model: nn.Module) -> None:
    model.double()


CHANGES: tuple[Callable[[nn.Module], None], ...] = (
    loaded,
    assigned,
    stepped,
    stepped_at_once,
    scaled_in_place,
    scaled_behind_autograd,
    one_row_behind_autograd,
    one_column_behind_autograd,
    data_replaced,
    parameter_replaced,
    rounded,
    doubled,
)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_weights_is_seen_at_the_next_call(change: Callable[[nn.Module], None]) -> None:
    model: Any = vgtok.wrap(vit(), budget=0.5)
    before = seen(model)
    change(model)
    after = seen(model)
    model.vgtok._kept = None
    assert torch.equal(after, seen(model))
    assert not torch.equal(after.float(), before)


def test_a_copy_of_a_model_in_use_is_its_own() -> None:
    model: Any = vgtok.wrap(vit(), budget=0.5)
    before = seen(model)
    twin: Any = copy.deepcopy(model)
    assert twin.vgtok._kept is None
    assert twin.vgtok.module is twin
    assert torch.equal(seen(twin), before)
    scaled_in_place(twin)
    assert not torch.equal(seen(twin), before)
    assert torch.equal(seen(model), before)


def test_unwrapped_after_use_it_is_the_model_it_was() -> None:
    model = vit()
    expected, weights = seen(model), copy.deepcopy(model.state_dict())
    vgtok.wrap(model, budget=0.5)
    seen(model)
    vgtok.unwrap(model)
    assert torch.equal(seen(model), expected)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_what_inference_mode_made_is_of_use_outside_it() -> None:
    model = vgtok.wrap(vit(), budget=0.5)
    with torch.inference_mode():
        model(IMAGES)
    image = IMAGES.clone().requires_grad_()
    model.requires_grad_(False)
    model(image).last_hidden_state.sum().backward()
    assert image.grad is not None
    assert image.grad.abs().sum() > 0


def test_a_model_born_in_inference_mode_is_never_taken_for_unchanged() -> None:
    with torch.inference_mode():
        model: Any = vgtok.wrap(vit(), budget=0.5)
        before = model(IMAGES).last_hidden_state
        for parameter in model.parameters():
            parameter.mul_(0.5)
        assert not torch.equal(model(IMAGES).last_hidden_state, before)
