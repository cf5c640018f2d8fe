"""Checkpoint files to encoder weights: safetensors, or a torch file of plain tensors; strict, whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vgtok.encode.encoder import Encoder
from vgtok.encode.sources import SOURCES
from vgtok.errors import InputError

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
    check_tensors(state, module.state_dict(), f"{origin}: does not fit this {type(module).__name__}")


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
    """The tensors of a .safetensors file, or of a torch file that holds nothing but tensors and plain values."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise InputError(f"{path}: not a safetensors file ({error})") from None
    try:
        # weights_only refuses anything that would run code while it is unpickled.
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"{path}: not a file of plain tensors ({str(error).splitlines()[0]})") from None
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise InputError(f"{path}: holds no state dict of tensors")
    return dict(content)
