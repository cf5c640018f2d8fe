"""Every backend against the masked reference, forward and backward; CUDA kernels through a stand-in on CPU."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.devices import HALVES
from vgtok.encode.attention import BACKENDS, Keys, attend, best_backend, masked
from vgtok.encode.packing import Groups
from vgtok.encode.precision import DTYPES
from vgtok.errors import InputError

GROUPS = {
    "ragged": Groups((7, 1, 12, 5), (0.0, 0.0, 0.0, 0.0)),
    "padded windows": Groups((7, 7, 1, 12, 5), (3.0, 3.0, 40.0, 0.0, 1.5)),
    "one": Groups((9,), (0.0,)),
}


def reference_kernel(scale_name: str) -> Callable[..., torch.Tensor]:
    """What a variable-length CUDA kernel computes, by a loop over its groups."""

    def kernel(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, **options: float) -> torch.Tensor:
        assert q.shape[-1] % 8 == 0
        assert max_q == cu_q.diff().max()
        assert max_k == cu_k.diff().max()
        parts = []
        for start, stop, first, last in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
            sides = (q[start:stop], k[first:last], v[first:last])
            heads_first = (side.transpose(0, 1) for side in sides)
            parts.append(
                functional.scaled_dot_product_attention(*heads_first, scale=options[scale_name]).transpose(0, 1)
            )
        return torch.cat(parts)

    return kernel


@pytest.fixture(params=[name for name in BACKENDS if name != "masked"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "varlen":
        stand_in: Any = SimpleNamespace(varlen_attn=reference_kernel("scale"))
        monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", stand_in)
    if name == "flash":
        module = ModuleType("flash_attn")
        module.flash_attn_varlen_func = reference_kernel("softmax_scale")  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "flash_attn", module)
    return name


def _inputs(groups: Groups, biased: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    count, heads, width = sum(groups.lengths), 3, 16
    shapes = [(count, heads, width)] * 3 + [(heads, width)] * 2 + [(count,)] * biased
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def _run(name: str, inputs: list[torch.Tensor], groups: Groups) -> torch.Tensor:
    q, k, v, key, value, *bias = inputs
    return attend(q, k, v, groups, Keys(key, value, bias[0] if bias else None), name)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", GROUPS)
def test_backend_equals_the_masked_reference(backend: str, kind: str, biased: bool) -> None:
    groups = GROUPS[kind]
    inputs = _inputs(groups, biased)
    expected, measured = (_run(name, inputs, groups) for name in ("masked", backend))
    assert (expected - measured).abs().max() < 1e-5
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    used = inputs if any(groups.padding) else [t for i, t in enumerate(inputs) if i not in (3, 4)]
    gradients = [torch.autograd.grad((out * weights).sum(), used, allow_unused=True) for out in (expected, measured)]
    for reference, gradient in zip(*gradients, strict=True):
        assert reference is not None
        assert gradient is not None
        assert (reference - gradient).abs().max() < 1e-5


def test_virtual_key_stands_for_that_many_real_keys() -> None:
    q, k, v, key, value = _inputs(Groups((6,), (0.0,)), False)
    merged = masked(q, k, v, Groups((6,), (5.0,)), Keys(key, value))
    k_all, v_all = torch.cat([k, key.expand(5, -1, -1)]), torch.cat([v, value.expand(5, -1, -1)])
    heads_first = (side.transpose(0, 1) for side in (q, k_all, v_all))
    plain = functional.scaled_dot_product_attention(*heads_first).transpose(0, 1)
    assert (merged - plain).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["grouped", "padded", "masked"])
def test_half_precision_queries_with_full_precision_extras(name: str) -> None:
    groups = GROUPS["padded windows"]
    q, k, v, key, value, bias = (t.detach() for t in _inputs(groups, True))
    expected = attend(q, k, v, groups, Keys(key, value, bias), name)
    measured = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), groups, Keys(key, value, bias), name)
    assert measured.dtype == torch.bfloat16
    assert (measured - expected).abs().max() < 0.05


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize(("device", "dtype"), HALVES)
def test_the_default_in_half_precision_equals_the_masked_reference(device: str, dtype: str, kind: str) -> None:
    groups, chosen = GROUPS[kind], DTYPES[dtype]
    inputs = [tensor.detach().to(device) for tensor in _inputs(groups, True)]
    expected = _run("masked", inputs, groups)
    half = [tensor.to(chosen) for tensor in inputs]
    if device == "cuda" and torch.cuda.get_device_capability()[0] >= 8:
        assert best_backend(half[0]) in ("varlen", "flash")
    measured = _run(best_backend(half[0]), half, groups)
    assert measured.dtype is chosen
    assert (measured - expected).abs().max() < (0.05 if chosen is torch.bfloat16 else 0.01)


def test_backend_is_chosen_by_device_and_refused_by_name() -> None:
    q = torch.zeros(4, 1, 8)
    assert best_backend(q) == "grouped"
    with pytest.raises(InputError, match="backend: 'fast' is not one of varlen, flash, grouped, padded, masked"):
        attend(q, q, q, Groups((4,), (0.0,)), Keys(q[0], q[0]), "fast")
