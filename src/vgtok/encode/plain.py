"""Which form of a module runs: the plain one it is trained in, or one that gives the same result in less time.

Linear maps are here in both forms, as every stage has some. For float32 torch takes MKL. Where a processor has AVX-512,
oneDNN, which is in torch too, multiplies up to twice as fast, as MKL does not use these instructions on every make of
processor. It also applies a GELU before the product is written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

_PLAIN = ContextVar("plain", default=False)


@contextmanager
def plain_modules() -> Iterator[None]:
    """Run every module inside in its plain form, which the others are tested and timed against."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def is_plain() -> bool:
    """Return whether this is inside `plain_modules`."""
    return _PLAIN.get()


def is_rewritten(like: Tensor) -> bool:
    """Return whether modules given this tensor run in their rewritten form: on CPUs, where no gradient is wanted.

    The rewritten forms gain by memory traffic of CPUs and have slow gradients. Exported graphs hold the plain ones.
    """
    return like.device.type == "cpu" and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or _PLAIN.get())


# Linear maps.

_ROWS = 16
"""Products are fast for a multiple of so many rows; for 1842 = 2 * 3 * 307 rows oneDNN takes a fifth more time."""

_FUSED = (torch.float32, torch.bfloat16)
"""Precisions of products with a GELU; float16 is not among them on every processor."""


def spare_rows(x: Tensor) -> int:
    """Return the rows to add to (N, C), which many linear maps in a row will be given, to make them fast."""
    return -len(x) % _ROWS if is_rewritten(x) and _has_fast_products() else 0


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map (..., C) by a (D, C) weight and a (D,) bias to (..., D)."""
    if _is_float32(x, weight) and is_rewritten(x) and _has_fast_products():
        return _product(x, weight, bias, "none")
    return functional.linear(x, weight, bias)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map (..., C) by a (D, C) weight and a (D,) bias, then apply an exact GELU: (..., D)."""
    if x.numel() and weight.dtype in _FUSED and is_rewritten(x) and _has_fast_products():
        return _product(x.to(weight.dtype), weight, bias, "gelu")
    return functional.gelu(functional.linear(x, weight, bias))


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., D)."""
        return linear(x, self.weight, self.bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    mapped: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "none")
    return mapped


def _is_float32(x: Tensor, weight: Tensor) -> bool:
    """Return whether there is something to multiply in float32; autocast, which wants another type, has its own way."""
    return bool(x.numel()) and x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


@cache
def _has_fast_products() -> bool:
    """Return whether oneDNN is there and the processor has the instructions it gains by."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and hasattr(torch.ops.mkldnn, "_linear_pointwise")
