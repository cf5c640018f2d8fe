"""Compare the outputs of models, whatever their types."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor


def tensors(output: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in an output, by its path."""
    if isinstance(output, Tensor):
        yield path, output
    elif hasattr(output, "items"):
        for name, value in output.items():
            yield from tensors(value, f"{path}.{name}")
    elif isinstance(output, list | tuple):
        for number, value in enumerate(output):
            yield from tensors(value, f"{path}.{number}")


def compare(measured: Any, expected: Any, tolerance: float) -> None:
    assert type(measured) is type(expected)
    found, wanted = dict(tensors(measured)), dict(tensors(expected))
    assert list(found) == list(wanted)
    for path, tensor in found.items():
        assert tensor.shape == wanted[path].shape, path
        assert tensor.dtype == wanted[path].dtype, path
        assert (tensor.float() - wanted[path].float()).abs().max() <= tolerance, path
