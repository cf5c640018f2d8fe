"""Checkpoint files to encoder weights: safetensors, or a torch file of plain tensors; strict, whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vgtok.encode.encoder import Encoder
from vgtok.encode.sources import SOURCES
from vgtok.errors import InputError
from vgtok.files import is_there

_FUSION = "embedding.fusion."


def load_weights(encoder: Encoder, path: str | Path, source: str) -> None:
    """Load a checkpoint made by `source` (vgtok, codetr, timm or transformers) into an encoder.

    Every tensor must find its place. Only the fusion, which no foreign checkpoint has, may stay as initialised: zero.
    """
    if source not in SOURCES:
        raise InputError(f"source: '{source}' is not one of {', '.join(SOURCES)}")
    state = SOURCES[source](read_state(Path(path)), encoder.config)
    if not any(name.startswith(_FUSION) for name in state):
        state.update({name: t for name, t in encoder.state_dict().items() if name.startswith(_FUSION)})
    check_state(state, encoder, str(path))
    encoder.load_state_dict(state)


def check_state(state: Mapping[str, Tensor], module: nn.Module, origin: str) -> None:
    """Refuse a state dict that does not fit a module, naming every missing, extra and misshapen tensor."""
    wanted = module.state_dict()
    check_tensors(state, wanted, f"{origin}: does not fit this {type(module).__name__}")
    for name, tensor in state.items():
        if tensor.is_floating_point() != wanted[name].is_floating_point():
            raise InputError(f"{origin}: {name} holds {tensor.dtype} instead of {wanted[name].dtype}; make it anew")


def check_tensors(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], verdict: str) -> None:
    """Refuse tensors that differ from the wanted ones in name or shape; `verdict` opens the message."""
    missing = sorted(wanted.keys() - state.keys())
    extra = sorted(state.keys() - wanted.keys())
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in state and state[name].shape != tensor.shape
    ]
    faults = [
        f"{label}: {', '.join(names)}"
        for label, names in (("missing", missing), ("extra", extra), ("of another shape", misshapen))
        if names
    ]
    if faults:
        raise InputError(f"{verdict}; {'; '.join(faults)}. Choose the configuration it was made with")


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file that holds nothing but tensors and plain values.

    A file with a NaN or infinite weight is refused: nothing it computes would mean anything.
    """
    if not (is_there(path) and path.is_file()):
        raise InputError(f"{path}: no such file")
    state = _read(path)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise InputError(f"{path}: {name} holds NaN or infinite values; the training that made it has diverged")
    return state


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        # Beside its own error it raises those of the mapping, of torch and of names that are not text.
        except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, MemoryError) as error:
            raise InputError(f"{path}: not a safetensors file ({_first_line(error)})") from None
    try:
        # weights_only refuses anything that would run code while it is unpickled.
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"{path}: not a file of plain tensors ({_first_line(error)})") from None
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_meta
        for name, tensor in content.items()
    ):
        raise InputError(f"{path}: holds no state dict of tensors")
    return dict(content)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
