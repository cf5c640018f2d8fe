"""Run a model you already have on the tokens of a budget, and give it back bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.defaults import DEFAULT_BUDGET
from vgtok.encode.config import EncoderConfig
from vgtok.encode.encoder import Encoder, Features
from vgtok.encode.loading import Filter, check_state
from vgtok.errors import InputError
from vgtok.hosts.adapters import Host, find_host
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

_HANDLE = "vgtok"


def wrap(
    model: nn.Module,
    budget: float = DEFAULT_BUDGET,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Make a transformers ViT or DINOv2, or a timm ViT or EVA-02, read every image at `budget`; returns the model.

    `model.vgtok.budget` changes the budget at any time. `mean` and `std`, on a scale of 0 to 1, are those the images
    are normalized with (default: timm's own, else the usual ones of the family): the tokenizer undoes them. Dropout
    does not run while wrapped.
    """
    module, host = find_host(model)
    if host.method in vars(module):
        raise InputError("model: already wrapped; set model.vgtok.budget, or unwrap it first")
    usual_mean, usual_std = host.normalization(module)
    wrapped = Wrapped(module, host, budget, tuple(mean or usual_mean), tuple(std or usual_std))
    setattr(module, host.method, wrapped.run)
    setattr(model, _HANDLE, wrapped)
    return model


def unwrap(model: nn.Module) -> nn.Module:
    """Give a wrapped model its own method back; returns the model."""
    wrapped = getattr(model, _HANDLE, None)
    if not isinstance(wrapped, Wrapped):
        raise InputError(f"model: this {type(model).__name__} is not wrapped")
    delattr(wrapped.module, wrapped.host.method)
    delattr(model, _HANDLE)
    return model


class Wrapped:
    """What a wrapped model carries as `model.vgtok`."""

    def __init__(
        self, module: nn.Module, host: Host, budget: float, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        self.module, self.host, self.mean, self.std = module, host, mean, std
        self.budget = budget
        self.config = host.describe(module)
        with torch.device("meta"):
            # Shapes only: the weights are the model's own at every call.
            self.skeleton = Encoder(self.config)
        self._kept: Renamed | None = None
        check_state(self._weights(), self.skeleton, f"model {type(module).__name__}")

    @property
    def budget(self) -> float:
        """Share of the dense grid every image is read at."""
        assert self.tokenizer.budget is not None
        return self.tokenizer.budget

    @budget.setter
    def budget(self, budget: float) -> None:
        self.tokenizer = Tokenizer(budget=budget, canvas="native")

    def run(self, pixel_values: Tensor, *arguments: Any, **options: Any) -> Any:
        """What the replaced method does instead: (B, 3, H, W) normalized images to the host's own output."""
        asked = [name for name, value in options.items() if value is not None and value is not False]
        refused = [name for name in asked if name not in ("interpolate_pos_encoding", "return_dict")]
        if arguments or refused:
            raise InputError(
                f"{', '.join(refused) or 'arguments'}: not available while wrapped; unwrap the model first"
            )
        self._check_size(pixel_values, options)
        tokens = self.partitions(pixel_values)
        pixels = pixel_values.to(next(self.module.parameters()).dtype)
        features: Features = torch.func.functional_call(
            self.skeleton, dict(self._weights()), (pixels.unbind(0), tokens)
        )
        # (D, rows, columns) maps to (B, rows * columns, D), after the prefix
        cells = torch.stack([grid.flatten(1).T for grid in features.maps])
        return self.host.answer(self.module, torch.cat([features.prefix, cells], dim=1), options)

    def partitions(self, pixel_values: Tensor) -> list[Tokens]:
        """Partitions of (B, 3, H, W) normalized images."""
        mean, std = (pixel_values.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        images = (pixel_values.detach() * std + mean).float() * 255
        if self.config.patch != CELL:
            # The tokenizer knows cells of 16 px: it sees the image at the scale where a patch is one.
            size = tuple(side // self.config.patch * CELL for side in images.shape[2:])
            images = functional.interpolate(images, size=size, mode="bilinear", antialias=True)
        images = images.round().clamp(0, 255).to(torch.uint8)
        if images.is_cuda:
            return self.tokenizer.batch(images)
        # (B, 3, H, W) to (B, H, W, 3): on the host OpenCV is the faster way to the same partition.
        arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
        return [self.tokenizer.partition(fit_canvas(np.asarray(array), "native")) for array in arrays]

    def _weights(self) -> Mapping[str, Tensor]:
        """The model's parameters under this encoder's names: made anew where gradients flow, else kept."""
        state = self.module.state_dict(keep_vars=True)
        learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in state.values())
        # Where a compiler looks on there is nothing to compare, and on a GPU joining q, k and v costs nothing.
        if learning or torch.compiler.is_compiling() or any(tensor.device.type != "cpu" for tensor in state.values()):
            self._kept = None
            return self.host.filter(state, self.config)
        if self._kept is None or not self._kept.still_of(state):
            self._kept = Renamed.of(state, self.host.filter, self.config)
        return self._kept.weights

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the model has parameters of its own.
        return {**self.__dict__, "_kept": None}

    def _check_size(self, pixel_values: Tensor, options: dict[str, Any]) -> None:
        if pixel_values.ndim != 4 or pixel_values.shape[1] != 3:
            raise InputError(f"pixel_values: shape {tuple(pixel_values.shape)} is not (B, 3, H, W)")
        patch, height, width = self.config.patch, *pixel_values.shape[2:]
        trained = (self.config.table[0] * patch, self.config.table[1] * patch)
        if self.host.has_fixed_size(self.module, options) and (height, width) != trained:
            raise InputError(
                f"pixel_values: images of {height} x {width} px, but this model takes {trained[0]} x {trained[1]}; "
                "resize them, or let the model resize its position table (interpolate_pos_encoding=True in "
                "transformers, dynamic_img_size=True in timm)"
            )
        if height % patch or width % patch:
            raise InputError(f"pixel_values: images of {height} x {width} px are not whole patches of {patch} px")


# Renamed weights, kept between calls while the parameters do not change.

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
