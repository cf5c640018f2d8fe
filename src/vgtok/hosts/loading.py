"""Load a detector of transformers from a folder or the hub: its configuration, its weights, its preprocessing."""

import json
from pathlib import Path
from typing import Any

from vgtok.errors import InputError, VGTokError
from vgtok.files import is_there
from vgtok.hosts.adapters import Host, all_hosts
from vgtok.hosts.detector import HostDetector
from vgtok.hosts.preprocessing import read_preprocessing

PREFIX = "transformers:"


def load_host(name: str) -> HostDetector:
    """Load `transformers:FOLDER` or `transformers:owner/name[@revision]`.

    A model that reads text looks for the names after a question mark, as in `transformers:FOLDER?car,person`.
    """
    place, _, text = name.removeprefix(PREFIX).partition("?")
    folder = _folder(place)
    config = _config(folder)
    architecture, host = _detector_class(config, folder)
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if host.reads_text and not names:
        raise InputError(f"model: a {host.name} looks for the names you give, as in '{PREFIX}{place}?car,person'")
    if names and not host.reads_text:
        raise InputError(f"model: a {host.name} knows its classes; leave out '?{text}'")
    usual = host.normalization(None)
    preprocessing = read_preprocessing(folder, usual, multiple=host.multiple, squares=host.squares)
    model = _weights(folder, architecture)
    queries = _queries(folder, names, model.config.text_config.max_position_embeddings) if names else None
    return HostDetector(model, host, preprocessing, names or _names(model.config), queries=queries)


def _folder(place: str) -> Path:
    path = Path(place)
    if is_there(path):
        if not path.is_dir():
            raise InputError(f"model: '{place}' is a file; give the folder that holds config.json")
        return path
    from vgtok.detect.loading import fetch, is_hub_name

    if not is_hub_name(place):
        raise InputError(f"model: '{place}' is neither a folder nor a hub name (owner/name)")
    return fetch(place, [".safetensors", ".json", ".txt"])


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder}: has no config.json, so it holds no model of transformers") from None
    except ValueError:
        raise InputError(f"{path}: is not a JSON file; save the model again") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: is not the configuration of a model")
    return config


def _detector_class(config: dict[str, Any], folder: Path) -> tuple[str, Host]:
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(named, str):
        raise InputError(f"{folder / 'config.json'}: names no architecture; save the model with save_pretrained")
    for host in all_hosts():
        if named in host.detectors:
            return named, host
    known = ", ".join(name for host in all_hosts() for name in host.detectors)
    if "Detection" in named:
        raise InputError(f"{folder}: {named} is of no family that can run at a budget; there are {known}")
    raise InputError(
        f"{folder}: holds a {named}, which is no detector; vgtok.wrap runs encoders, detectors are {known}"
    )


def _weights(folder: Path, architecture: str) -> Any:
    """Load the model; only safetensors files are read, and every tensor must be there."""
    try:
        import transformers
    except ImportError:
        raise VGTokError("transformers is not installed; pip install 'vgtok[hosts]'") from None
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise InputError(
            f"{folder}: transformers {transformers.__version__} has no {architecture}; install a newer one"
        )
    if not any(folder.glob("*.safetensors")):
        raise InputError(f"{folder}: has no weights as safetensors, and no other files are read")
    logs: Any = transformers.logging
    level, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        model, report = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype="float32",
            # Reported, and refused below, instead of printed.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    # Damaged files raise errors of safetensors, of json, of torch and of the configuration's own checks.
    except Exception as error:
        raise InputError(f"{folder}: cannot be loaded as {architecture} ({_first_line(error)})") from None
    finally:
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()
    if lacking := sorted({*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}):
        raise InputError(f"{folder}: its weights lack {', '.join(lacking[:3])}, so it is not this {architecture} whole")
    return model


def _names(config: Any) -> tuple[str, ...]:
    """Return the class names in label order; a label without a name is called by its number."""
    labels = {int(label): str(name) for label, name in config.id2label.items()}
    return tuple(labels.get(label, f"class {label}") for label in range(max(labels, default=-1) + 1))


def _queries(folder: Path, names: tuple[str, ...], length: int) -> dict[str, Any]:
    """Return the token ids of the names, (names, length), by the tokenizer of the model."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise InputError(f"{folder}: has no tokenizer that reads names ({_first_line(error)})") from None
    texts = [f"a photo of a {name}" for name in names]
    encoded = tokenizer(texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
