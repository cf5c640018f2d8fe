"""Which form of a module runs: the plain one it is trained in, or one that gives the same result in less time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

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
