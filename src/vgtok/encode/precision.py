"""Devices and precisions by name: choose them, convert the weights of a model once, and run it in them.

In half precision the weights of linear maps and convolutions are stored and multiplied in it. Residuals, norms,
positions and boxes stay in float32. On CPUs attention is then two matrix products; on CUDA, the variable-length kernel.
"""

import logging
from functools import cache
from typing import Any

import torch
from torch import nn

from vgtok.errors import InputError

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
"""Precisions by name."""

_LOG = logging.getLogger(__name__)


def find_device(name: str | torch.device) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one, else the CPU."""
    present = _devices()
    if name == "auto":
        return torch.device(present[0])
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"device: '{name}' is not one of auto, cpu, cuda, cuda:N, mps") from None
    if str(device) not in present:
        raise InputError(f"device: '{device}' is not present here; choose one of {', '.join(present)}")
    return device


def find_dtype(name: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the precision of that name; "auto" is what the device is fastest in without loss of AP."""
    if name == "auto":
        return _fastest(device)
    chosen = name if isinstance(name, torch.dtype) else DTYPES.get(name)
    if chosen is None or chosen not in DTYPES.values():
        raise InputError(f"dtype: '{name}' is not one of auto, {', '.join(DTYPES)}")
    if chosen is torch.bfloat16 and device.type == "cuda" and not multiplies_bfloat16(device):
        raise InputError("dtype: this GPU has no bfloat16; use float16")
    if chosen is torch.float16 and device.type == "cpu":
        _LOG.warning("note: processors are slow in float16; bfloat16 or float32 is faster")
    return chosen


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a precision."""
    return str(dtype).removeprefix("torch.")


def convert_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert the parameters of all linear maps, convolutions and attention projections in place; not norms, tables."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(dtype)


def running_in(dtype: torch.dtype, device: torch.device) -> Any:
    """Return a context in which a converted model runs: products in `dtype`, sums and norms in float32."""
    # Weights are converted already: a cache of conversions would only hold memory.
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32, cache_enabled=False)


def _devices() -> list[str]:
    """Return the names of all devices here, the fastest first."""
    found = []
    if torch.cuda.is_available():
        found += ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        found += ["mps", "mps:0"]
    return [*found, "cpu"]


def _fastest(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        return torch.bfloat16 if multiplies_bfloat16(device) else torch.float16
    if multiplies_bfloat16(device):
        _say_once()
        return torch.bfloat16
    return torch.float32


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for products of bfloat16; without them it is slower in it."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def _say_once() -> None:
    _LOG.warning(
        "note: running in bfloat16, in which this processor is faster; results differ in the third digit from "
        "float32, which dtype='float32' or --dtype float32 selects"
    )
