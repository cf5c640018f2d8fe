"""Make an existing model read images at a token budget, and restore it bit for bit.

A model of transformers or timm enters; the same model leaves, with one method replaced and a `vgtok` attribute.
"""

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

_BRIGHTEST = 8 * 255.0
"""Beyond this an image with its normalization undone was never normalized: far above noise, far below raw pixels."""


def wrap(
    model: nn.Module,
    budget: float = DEFAULT_BUDGET,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Make a transformers ViT or DINOv2, or a timm ViT or EVA-02, read every image at `budget`; return the model.

    Set `model.vgtok.budget` to change the budget. `mean` and `std`, on a scale of 0 to 1, are those the images are
    normalized with; the tokenizer undoes them. They default to timm's own values or those of the family. Dropout is
    off while the model is wrapped.
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
    """Restore the original method of a wrapped model; return the model."""
    wrapped = getattr(model, _HANDLE, None)
    if not isinstance(wrapped, Wrapped):
        raise InputError(f"model: this {type(model).__name__} is not wrapped")
    delattr(wrapped.module, wrapped.host.method)
    delattr(model, _HANDLE)
    return model


class Wrapped:
    """The `vgtok` attribute of a wrapped model."""

    def __init__(
        self, module: nn.Module, host: Host, budget: float, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        self.module, self.host, self.mean, self.std = module, host, mean, std
        self.budget = budget
        self.config = host.describe(module)
        with torch.device("meta"):
            # Shapes only: every call uses the model's own weights.
            self.skeleton = Encoder(self.config)
        self._kept: Renamed | None = None
        check_state(self._weights(), self.skeleton, f"model {type(module).__name__}")

    @property
    def budget(self) -> float:
        """Share of the dense grid each image keeps."""
        assert self.tokenizer.budget is not None
        return self.tokenizer.budget

    @budget.setter
    def budget(self, budget: float) -> None:
        self.tokenizer = Tokenizer(budget=budget, canvas="native")

    def run(self, pixel_values: Tensor, *arguments: Any, **options: Any) -> Any:
        """Replace the method of the model: (B, 3, H, W) normalized images to the model's own output."""
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
        """Partition (B, 3, H, W) normalized images."""
        mean, std = (pixel_values.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        images = (pixel_values.detach() * std + mean).float() * 255
        # Under a compiler a value cannot be looked at.
        looked = images.numel() > 0 and not torch.compiler.is_compiling()
        if looked and not float(images.abs().amax()) < _BRIGHTEST:
            raise InputError(
                f"pixel_values: values up to {float(pixel_values.abs().amax()):.4g} are not a normalized image; scale "
                "pixels to 0 to 1, then subtract mean and divide by std, as the image processor of the model does"
            )
        if self.config.patch != CELL:
            # Cells are 16 px: the tokenizer sees the image at the scale where a patch is one cell.
            size = tuple(side // self.config.patch * CELL for side in images.shape[2:])
            images = functional.interpolate(images, size=size, mode="bilinear", antialias=True)
        images = images.round().clamp(0, 255).to(torch.uint8)
        if images.is_cuda:
            return self.tokenizer.batch(images)
        # (B, 3, H, W) to (B, H, W, 3): on the CPU OpenCV is faster and gives the same partition.
        arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
        return [self.tokenizer.partition(fit_canvas(np.asarray(array), "native")) for array in arrays]

    def _weights(self) -> Mapping[str, Tensor]:
        """Return the model's parameters under the encoder's names, cached unless gradients are needed."""
        state = self.module.state_dict(keep_vars=True)
        learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in state.values())
        # Under a compiler parameters cannot be compared, and on a GPU joining q, k and v costs next to nothing.
        if learning or torch.compiler.is_compiling() or any(tensor.device.type != "cpu" for tensor in state.values()):
            self._kept = None
            return self.host.filter(state, self.config)
        if self._kept is None or not self._kept.still_of(state):
            self._kept = Renamed.of(state, self.host.filter, self.config)
        return self._kept.weights

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the model has other parameters.
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
    """The state of a parameter: its memory (held so that it is not reused), its version counter, a sample of values.

    The counter misses writes through `.data`, which the sample detects. It is None for a parameter that was not copied.
    """

    parameter: Tensor
    memory: Tensor
    changes: int
    sample: Tensor | None

    def holds(self, parameter: Tensor) -> bool:
        """Return whether the parameter is unchanged; False for inference tensors, which have no version counter."""
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
    """Renamed weights without gradients, and a mark of every parameter they come from."""

    weights: Mapping[str, Tensor]
    marks: Mapping[str, _Mark]

    @classmethod
    def of(cls, state: Mapping[str, Tensor], rename: Filter, config: EncoderConfig) -> "Renamed":
        """Rename parameters by the filter of an adapter."""
        # Outside inference mode: tensors made inside it could not be used in later calls outside it.
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
        """Return whether these are the parameters the weights come from, unchanged."""
        return state.keys() == self.marks.keys() and all(
            self.marks[name].holds(tensor) for name, tensor in state.items()
        )


def _sample(parameter: Tensor) -> Tensor:
    """Return one value of every row and column of a large parameter, (N,), or all of a small one."""
    flat = parameter.detach().flatten()
    return flat if flat.numel() <= _FEW else flat[:: parameter.shape[-1] + 1]
