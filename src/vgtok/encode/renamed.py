"""A model's parameters under this encoder's names, kept from call to call, and the test that they are still the same.

Most renamed tensors are views of the parameters and follow whatever happens to them. Those that were joined, q, k and v
above all, are copies: they hold as long as every parameter is the same object, at the same place in memory, with the
same count of changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vgtok.encode.config import EncoderConfig
from vgtok.encode.sources import Filter

_FEW = 4096


@dataclass(frozen=True)
class _Mark:
    """A parameter as it was: its memory, which it keeps from being given to another, its count of changes, a sample.

    The count misses what is written through `.data`; the sample is there to see that. It is None for a parameter that
    was not copied.
    """

    parameter: Tensor
    memory: Tensor
    changes: int
    sample: Tensor | None

    def holds(self, parameter: Tensor) -> bool:
        """Whether the parameter is as it was; one made in inference mode keeps no count, so nobody can tell."""
        return (
            parameter is self.parameter
            and not parameter.is_inference()
            and parameter.data_ptr() == self.memory.data_ptr()
            and parameter.dtype == self.memory.dtype
            and parameter._version == self.changes
            and (self.sample is None or torch.equal(_sample(parameter), self.sample))
        )


@dataclass(frozen=True)
class Renamed:
    """Renamed weights without gradients, and a mark of every parameter they were made of."""

    weights: Mapping[str, Tensor]
    marks: Mapping[str, _Mark]

    @classmethod
    def of(cls, state: Mapping[str, Tensor], rename: Filter, config: EncoderConfig) -> "Renamed":
        """Rename parameters by a host's filter."""
        # Out of inference mode: what is made inside could not be used in a later call outside of it.
        with torch.inference_mode(False), torch.no_grad():
            weights = rename(state, config)
            shared = {tensor.untyped_storage().data_ptr() for tensor in weights.values()}
            marks = {
                name: _Mark(
                    tensor,
                    tensor.detach(),
                    0 if tensor.is_inference() else tensor._version,
                    None if tensor.untyped_storage().data_ptr() in shared else _sample(tensor).clone(),
                )
                for name, tensor in state.items()
            }
        return cls(weights, marks)

    def still_of(self, state: Mapping[str, Tensor]) -> bool:
        """Whether these are the parameters the weights were made of, unchanged."""
        return state.keys() == self.marks.keys() and all(
            self.marks[name].holds(tensor) for name, tensor in state.items()
        )


def _sample(parameter: Tensor) -> Tensor:
    """One value of every row and column of a large parameter, (N,), all of a small one."""
    flat = parameter.detach().flatten()
    return flat if flat.numel() <= _FEW else flat[:: parameter.shape[-1] + 1]
