"""What an adapter says of a family of models, and the list of all families.

Every module of `vgtok.hosts.families` describes its families in `FAMILIES`; a new module there is found by itself.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from vgtok.errors import InputError
from vgtok.hosts.plan import Plan
from vgtok.hosts.predictions import Predictions

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
Arguments = Callable[[Tensor], Mapping[str, Any]]
"""The arguments of a layer for the (count, length) slots of a batch."""

IMAGENET: Normalization = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF: Normalization = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
OPENAI: Normalization = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@dataclass(frozen=True)
class Pass:
    """One call of a wrapped model: its plan, its options and the packed (N, D) sequence at the depths asked for."""

    plan: Plan
    pixel_values: Tensor
    options: Mapping[str, Any]
    depths: Mapping[int, Tensor]

    @property
    def last(self) -> Tensor:
        """The sequence after the last layer, (N, D)."""
        return self.depths[max(self.depths)]

    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """Return the host's hidden states of all depths, if they were asked for."""
        if not self.options.get("output_hidden_states"):
            return None
        return tuple(self.plan.spread(self.depths[depth]) for depth in sorted(self.depths))


@dataclass(frozen=True)
class Host:
    """One family of models of one library.

    `classes` are the names of backbones whose `method` is replaced; `projection` and `layers` are paths in them, of the
    patch convolution and of the layers. `embed` returns the host's own embedding of (B, 3, H, W) images,
    (B, L, D), with the numbers of `special` tokens before and after the cells, `between` what it adds after each layer;
    `before_layers` is the path of a norm before the first. `finish` makes the host's output from the `depths` it reads,
    by default the last alone. `options` are the arguments of the method that the adapter reads; others are refused.
    `normalization` is the mean and standard deviation of its images. `check` raises InputError for models that cannot
    run, `check_size` for heights and widths; `sizes` and `note` say the same in words.

    `window` is the rows and columns of cells of an attention window, `is_windowed` tells which layers use it, and
    `held` are attributes of the layers while wrapped, so that they leave the grouping to the plan. `arguments` gives
    the layers their positions; `mask` is the name of their attention mask, None if they take none. `outer` are methods
    of models around the backbone whose output depends on the plan, by class name; `refused` are methods that have no
    meaning while wrapped. `checkpointed` tells whether to recompute layers, where they do not do so themselves.

    `detectors` are the classes of whole detectors, `predict` reads their output. Their images are cut to a `multiple`
    of pixels, or padded to squares; with `reads_text` they look for named classes.
    """

    name: str
    library: str
    classes: tuple[str, ...]
    projection: str
    layers: str
    embed: Callable[[Any, Tensor, Mapping[str, Any]], Tensor]
    finish: Callable[[Any, Pass], Any]
    normalization: Callable[[Any], Normalization]
    special: Callable[[Any], tuple[int, int]] = lambda model: (1, 0)
    before_layers: str | None = None
    between: Callable[[Any, Tensor], Tensor | None] = lambda model, pixel_values: None
    method: str = "forward"
    options: tuple[str, ...] = ()
    depths: Callable[[Any, Mapping[str, Any]], set[int]] | None = None
    check: Callable[[Any], None] = lambda model: None
    check_size: Callable[[Any, tuple[int, int], Mapping[str, Any]], None] = lambda model, size, options: None
    window: Callable[[Any, tuple[int, int]], tuple[int, int] | None] = lambda model, grid: None
    is_windowed: Callable[[Any], bool] = lambda layer: False
    held: Mapping[str, Any] = field(default_factory=dict)
    arguments: Callable[[Any, Plan, Tensor], Arguments] = lambda model, plan, pixel_values: lambda slots: {}
    mask: str | None = "attention_mask"
    outer: Mapping[str, Mapping[str, Callable[[Any, Plan], Any]]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    checkpointed: Callable[[Any], bool] = lambda model: False
    hidden_states: bool = True
    detectors: tuple[str, ...] = ()
    predict: Callable[[Any, int], list[Predictions]] | None = None
    multiple: int = 1
    squares: bool = False
    reads_text: bool = False
    sizes: str = "any"
    note: str = ""


_RELATIVE = (
    "its attention adds a position for every pair of rows and columns of a whole grid, which coarse tokens do not form"
)

REFUSED: Mapping[tuple[str, str], str] = {
    ("transformers", "SamVisionEncoder"): _RELATIVE,
    ("transformers", "SamHQVisionEncoder"): _RELATIVE,
    ("transformers", "VitDetModel"): _RELATIVE,
    ("transformers", "VitDetBackbone"): _RELATIVE,
}
"""Why models that look like those of a family cannot run at a budget, by library and class."""


@cache
def all_hosts() -> tuple[Host, ...]:
    """Return every family, in the order of their modules."""
    package = import_module("vgtok.hosts.families")
    modules = (import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__))
    return tuple(host for module in modules for host in module.FAMILIES)


def find_host(model: nn.Module) -> tuple[nn.Module, Host]:
    """Return the backbone in `model` and its adapter; raise InputError if there is none."""
    known = {(host.library, name): host for host in all_hosts() for name in host.classes}
    for module in model.modules():
        for kind in type(module).__mro__:
            named = (kind.__module__.partition(".")[0], kind.__name__)
            if named in REFUSED:
                raise InputError(f"model: {kind.__name__} cannot be wrapped: {REFUSED[named]}")
            host = known.get(named)
            if host is not None:
                host.check(module)
                return module, host
    families = ", ".join(f"{host.name} ({host.library})" for host in all_hosts())
    raise InputError(f"model: {type(model).__name__} holds no backbone that can be wrapped; families: {families}")
