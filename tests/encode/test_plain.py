import pytest
import torch
from torch import nn
from torch.nn import functional

from vgtok.encode.plain import Linear, linear, linear_gelu, plain_modules, spare_rows


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(24, 40)


@pytest.mark.parametrize("shape", [(1, 24), (37, 24), (2, 5, 24), (0, 24), (2, 0, 24)])
def test_products_are_those_of_torch(layer: nn.Linear, shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape)
    with torch.inference_mode():
        torch.testing.assert_close(linear(x, layer.weight, layer.bias), layer(x), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(linear(x, layer.weight), functional.linear(x, layer.weight), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(
            linear_gelu(x, layer.weight, layer.bias), functional.gelu(layer(x)), atol=1e-6, rtol=1e-5
        )


def test_rows_may_lie_anywhere(layer: nn.Linear) -> None:
    x = torch.randn(24, 9).T[::2]
    with torch.inference_mode():
        torch.testing.assert_close(linear(x, layer.weight, layer.bias), layer(x), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(linear(x, layer.weight.T.contiguous().T, layer.bias), layer(x), atol=1e-6, rtol=1e-5)


def test_gelu_in_half_precision_rounds_once(layer: nn.Linear) -> None:
    x, half = torch.randn(50, 24), nn.Linear(24, 40).to(torch.bfloat16)
    half.load_state_dict(layer.state_dict())
    exact = functional.gelu(functional.linear(x.to(torch.bfloat16).float(), half.weight.float(), half.bias.float()))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_gelu(x, half.weight, half.bias)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.float(), exact, atol=2e-2, rtol=2e-2)


def test_a_half_precision_layer_follows_autocast(layer: nn.Linear) -> None:
    own = Linear(24, 40).to(torch.bfloat16)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert own(torch.randn(3, 24)).dtype is torch.bfloat16


def test_gradients_flow_as_in_torch(layer: nn.Linear) -> None:
    own = Linear(24, 40)
    own.load_state_dict(layer.state_dict())
    x = torch.randn(7, 24)
    own(x).square().sum().backward()
    layer(x).square().sum().backward()
    assert own.weight.grad is not None
    assert layer.weight.grad is not None
    torch.testing.assert_close(own.weight.grad, layer.weight.grad)
    assert linear_gelu(x, own.weight, own.bias).requires_grad


def test_spare_rows_are_for_inference_alone() -> None:
    x = torch.zeros(37, 8)
    assert spare_rows(x) == 0
    with torch.inference_mode():
        assert spare_rows(x) in (0, 11)
        assert spare_rows(torch.zeros(48, 8)) == 0
        with plain_modules():
            assert spare_rows(x) == 0
