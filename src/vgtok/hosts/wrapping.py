"""Make an existing model read images at a token budget, and restore it bit for bit.

A model of transformers or timm enters; the same model leaves, with one method replaced and a `vgtok` attribute. Its own
layers and weights run, on fewer tokens; nothing is copied or converted.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vgtok.defaults import DEFAULT_BUDGET
from vgtok.errors import InputError
from vgtok.hosts.adapters import Host, Pass, find_host
from vgtok.hosts.plan import Plan, make_plan
from vgtok.hosts.running import embed, run_layers
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

_HANDLE = "vgtok"

_BRIGHTEST = 8 * 255.0
"""Beyond this an image with its normalization undone was never normalized: far above noise, far below raw pixels."""

_GIVEN: ContextVar[list[Tokens] | None] = ContextVar("partitions made before the call", default=None)
_PLANS: ContextVar[list[Plan] | None] = ContextVar("plans of the call of an outer model", default=None)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _outside_graphs(method: _Method) -> _Method:
    """Keep a method out of compiled graphs; what it calls, as the layers of the host, is compiled."""
    kept: _Method = torch.compiler.disable(method, recursive=False)  # type: ignore[no-untyped-call]
    return kept


def _uncompiled(method: _Method) -> _Method:
    """Keep a method and all it calls out of compiled graphs."""
    kept: _Method = torch.compiler.disable(method)  # type: ignore[no-untyped-call]
    return kept


def wrap(
    model: nn.Module,
    budget: float | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    proportional: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Make a model of transformers or timm read every image at `budget` [default: 0.4]; return the model.

    `vgtok hosts` lists the families. Give a `tokenizer` of your own instead of a budget to choose its settings; set
    `model.vgtok.budget` or `model.vgtok.tokenizer` to change them later. With `proportional` the logit of a coarse
    key is raised by the logarithm of the cells it covers. `mean` and `std`, on a scale of 0 to 1, are those the images
    are normalized with; the tokenizer undoes them. They default to those of the family.
    """
    module, host = find_host(model)
    if host.method in vars(module):
        raise InputError("model: already wrapped; set model.vgtok.budget, or unwrap it first")
    if budget is not None and tokenizer is not None:
        raise InputError("budget: a tokenizer brings its own; give either budget= or tokenizer=")
    if proportional and host.mask is None:
        raise InputError(f"proportional: the layers of {type(module).__name__} take no attention mask")
    usual_mean, usual_std = host.normalization(module)
    wrapped = Wrapped(
        module,
        host,
        tokenizer or Tokenizer(DEFAULT_BUDGET if budget is None else budget),
        proportional=proportional,
        mean=tuple(mean or usual_mean),
        std=tuple(std or usual_std),
    )
    wrapped.install(model)
    return model


@contextmanager
def given_partitions(partitions: list[Tokens]) -> Iterator[None]:
    """Make wrapped models called inside read their batch by these partitions, one per image."""
    token = _GIVEN.set(partitions)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def unwrap(model: nn.Module) -> nn.Module:
    """Restore the original methods of a wrapped model; return the model."""
    wrapped = getattr(model, _HANDLE, None)
    if not isinstance(wrapped, Wrapped):
        raise InputError(f"model: this {type(model).__name__} is not wrapped")
    wrapped.remove(model)
    return model


def _refuse(method: str, *arguments: Any, **options: Any) -> None:
    raise InputError(f"{method}: not available while wrapped; unwrap the model first")


class Wrapped:
    """The `vgtok` attribute of a wrapped model."""

    def __init__(
        self,
        module: nn.Module,
        host: Host,
        tokenizer: Tokenizer,
        *,
        proportional: bool,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        self.module, self.host, self.proportional, self.mean, self.std = module, host, proportional, mean, std
        self.tokenizer = tokenizer
        self._signature = inspect.signature(getattr(module, host.method))
        self._layers: Sequence[nn.Module] = attrgetter(host.layers)(module)
        self._held = [{name: getattr(layer, name) for name in host.held} for layer in self._layers]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; images keep their own size whatever its canvas."""
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise InputError(f"tokenizer: a {type(tokenizer).__name__} is not a vgtok.Tokenizer")
        self._tokenizer = replace(tokenizer, canvas="native")

    @property
    def budget(self) -> float | None:
        """Share of the dense grid each image keeps; None for a tokenizer with a percentile."""
        return self.tokenizer.budget

    @budget.setter
    def budget(self, budget: float) -> None:
        self.tokenizer = replace(self.tokenizer, budget=budget, percentile=None)

    def install(self, model: nn.Module) -> None:
        """Replace the methods of the model."""
        setattr(self.module, self.host.method, self.run)
        for method, edit in self._outer(model).items():
            setattr(model, method, partial(self.run_outer, getattr(model, method), edit))
        for method in self.host.refused:
            setattr(self.module, method, partial(_refuse, method))
        for layer in self._layers:
            for name, value in self.host.held.items():
                setattr(layer, name, value)
        setattr(model, _HANDLE, self)

    def remove(self, model: nn.Module) -> None:
        """Restore the methods of the model."""
        delattr(self.module, self.host.method)
        for method in self._outer(model):
            delattr(model, method)
        for method in self.host.refused:
            delattr(self.module, method)
        for layer, values in zip(self._layers, self._held, strict=True):
            for name, value in values.items():
                setattr(layer, name, value)
        delattr(model, _HANDLE)

    def _outer(self, model: nn.Module) -> Mapping[str, Any]:
        return self.host.outer.get(type(model).__name__, {})

    @_outside_graphs
    def run(self, *arguments: Any, **options: Any) -> Any:
        """Replace the method of the backbone: (B, 3, H, W) normalized images to the model's own output."""
        pixel_values, asked, as_tuple = self._options(arguments, options)
        self._check(pixel_values, asked)
        plan = self.plan(pixel_values)
        if (plans := _PLANS.get()) is not None:
            plans.append(plan)
        pixels = pixel_values.to(attrgetter(self.host.projection)(self.module).weight.dtype)
        sequence = embed(self.module, self.host, plan, pixels, asked)
        depths = run_layers(
            self.module, self.host, plan, sequence, pixels, self._depths(asked), proportional=self.proportional
        )
        output = self.host.finish(self.module, Pass(plan, pixels, asked, depths))
        return output.to_tuple() if as_tuple else output

    @_outside_graphs
    def run_outer(self, method: Any, edit: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the model around the backbone and edit its output by the plan of its last image batch."""
        config = getattr(method.__self__, "config", None)
        as_tuple = options.pop("return_dict", getattr(config, "return_dict", True)) is False
        token = _PLANS.set([])
        try:
            output, plans = method(*arguments, **options, return_dict=True), _PLANS.get()
        finally:
            _PLANS.reset(token)
        output = edit(output, plans[-1]) if plans else output
        return output.to_tuple() if as_tuple else output

    @_uncompiled
    def plan(self, pixel_values: Tensor) -> Plan:
        """Partition (B, 3, H, W) normalized images and plan their sequence."""
        window = self.host.window(self.module, self._grid(pixel_values))
        return make_plan(self.partitions(pixel_values), self.host.special(self.module), window, pixel_values.device)

    def partitions(self, pixel_values: Tensor) -> list[Tokens]:
        """Partition (B, 3, H, W) normalized images, on the scale where a patch is one 16-px cell."""
        if (given := _GIVEN.get()) is not None:
            return given
        images = self.cell_images(pixel_values)
        if images.is_cuda:
            return self.tokenizer.batch(images)
        # (B, 3, H, W) to (B, H, W, 3): on the CPU OpenCV is faster and gives the same partition.
        arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
        return [self.tokenizer.partition(fit_canvas(np.asarray(array), "native")) for array in arrays]

    def cell_images(self, pixel_values: Tensor) -> Tensor:
        """Undo the normalization of (B, 3, H, W) images; return them with 16 px for each patch, (B, 3, h, w) uint8."""
        mean, std = (pixel_values.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        images = (pixel_values.detach() * std + mean).float() * 255
        if images.numel() > 0 and not float(images.abs().amax()) < _BRIGHTEST:
            raise InputError(
                f"pixel_values: values up to {float(pixel_values.abs().amax()):.4g} are not a normalized image; scale "
                "pixels to 0 to 1, then subtract mean and divide by std, as the image processor of the model does"
            )
        rows, columns = self._grid(pixel_values)
        if self.patch == CELL:
            images = images[:, :, : rows * CELL, : columns * CELL]
        else:
            whole = images[:, :, : rows * self.patch, : columns * self.patch]
            size = (rows * CELL, columns * CELL)
            images = functional.interpolate(whole, size=size, mode="bilinear", antialias=True)
        return images.round().clamp(0, 255).to(torch.uint8)

    @property
    def patch(self) -> int:
        """Side of a patch in pixels."""
        sides = {*attrgetter(self.host.projection)(self.module).kernel_size}
        if len(sides) > 1:
            raise InputError(f"model: patches of {' x '.join(map(str, sorted(sides)))} px are not square")
        return int(sides.pop())

    def _grid(self, pixel_values: Tensor) -> tuple[int, int]:
        """Return the rows and columns of whole patches of (B, 3, H, W) images."""
        height, width = pixel_values.shape[2:]
        return height // self.patch, width // self.patch

    def _options(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any], bool]:
        """Return the images, what else was asked for, and whether as a tuple; refuse what the adapter cannot give."""
        bound = dict(self._signature.bind(*arguments, **options).arguments)
        for name, kind in self._signature.parameters.items():
            if kind.kind is inspect.Parameter.VAR_KEYWORD:
                bound.update(bound.pop(name, {}))
        [(_, pixel_values), *others] = bound.items()
        config = getattr(self.module, "config", None)
        asked = {name: getattr(config, name, None) for name in ("output_hidden_states", "output_attentions")}
        asked = {
            name: value for name, value in {**asked, **dict(others)}.items() if value is not None and value is not False
        }
        as_tuple = options.get("return_dict", getattr(config, "return_dict", True)) is False
        asked.pop("return_dict", None)
        if asked.get("output_attentions"):
            raise InputError(
                "output_attentions: attention is between tokens while wrapped, not between patches; unwrap the model"
            )
        known = {*self.host.options, *(["output_hidden_states"] if self.host.hidden_states else [])}
        if refused := [name for name in asked if name not in known]:
            raise InputError(f"{', '.join(refused)}: not available while wrapped; unwrap the model first")
        if "output_hidden_states" in asked and asked["output_hidden_states"] is not True:
            raise InputError("output_hidden_states: give True for those of all layers; a list is not available")
        return pixel_values, asked, as_tuple

    def _depths(self, asked: Mapping[str, Any]) -> set[int]:
        last = len(self._layers)
        if asked.get("output_hidden_states"):
            return set(range(last + 1))
        return {last} if self.host.depths is None else self.host.depths(self.module, asked)

    def _check(self, pixel_values: Tensor, asked: Mapping[str, Any]) -> None:
        if not isinstance(pixel_values, Tensor) or pixel_values.ndim != 4 or pixel_values.shape[1] != 3:
            shown = tuple(pixel_values.shape) if isinstance(pixel_values, Tensor) else type(pixel_values).__name__
            raise InputError(f"pixel_values: shape {shown} is not (B, 3, H, W)")
        height, width = pixel_values.shape[2:]
        grid = self._grid(pixel_values)
        if min(grid) < 1:
            raise InputError(f"pixel_values: images of {height} x {width} px hold no patch of {self.patch} px")
        self.host.check_size(self.module, (height, width), asked)
