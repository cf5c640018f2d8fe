"""A detector as a folder and back: config.json says what it is, a safetensors file beside it holds the weights.

config.json is written last and names the weights by their digest, so a save over an older model takes effect at once or
not at all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgtok.detect.card import model_card
from vgtok.detect.config import Auxiliary, DetectorConfig
from vgtok.detect.detector import DEFAULT_BUDGET, Detector
from vgtok.detect.heads import Head
from vgtok.detect.model import CoDetr
from vgtok.encode.loading import check_state, read_state
from vgtok.errors import InputError
from vgtok.files import drafted, is_there, read_json, replacing, write_text
from vgtok.tokenize.canvas import CanvasSize, check_size
from vgtok.tokenize.retention import RetentionTable

FORMAT = "vgtok-detector"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
CARD_FILE = "README.md"


def save_detector(
    detector: Detector, folder: str | Path, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
) -> Path:
    """Write a detector to a folder, whole or not at all; returns the file of its weights.

    `auxiliary` names the heads beside the query head to keep: all of the model's unless told otherwise, none for plain
    inference. `half` stores fp16, for shipping; loading gives fp32 again.
    """
    folder = Path(folder)
    config = detector.model.config
    kept = config.auxiliary if auxiliary is None else auxiliary
    if lacking := set(kept) - set(config.auxiliary):
        raise InputError(f"auxiliary: this model has no {', '.join(sorted(lacking))} head to keep")
    config = replace(config, auxiliary=tuple(head for head in config.auxiliary if head in kept))
    state = _state_for(config, detector.model, half=half)
    with replacing(folder / CONFIG_FILE) as reserved, drafted(folder / "model") as draft:
        # Reserving the names first makes the folder and proves that it can be written to.
        weights = _write_weights(state, draft)
        reserved.write_text(json.dumps(_document(detector, config, weights), indent=1) + "\n", encoding="utf-8")
    for stale in folder.glob("model*.safetensors"):
        if stale != weights:
            stale.unlink()
    return weights


def save_with_card(
    detector: Detector, folder: Path, name: str, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
) -> Path:
    """`save_detector`, and a model card for a model called `name` unless the folder has one, which may be edited."""
    weights = save_detector(detector, folder, auxiliary=auxiliary, half=half)
    if not (folder / CARD_FILE).exists():
        write_text(folder / CARD_FILE, model_card(read_config(folder), name))
    return weights


def load_detector(folder: str | Path) -> Detector:
    """Read a folder `save_detector` wrote; every tensor must be there, fit, and be the one that was saved."""
    folder = Path(folder)
    document = read_config(folder)
    origin = str(folder / CONFIG_FILE)
    try:
        config = DetectorConfig.from_dict(document["config"])
        preprocessing, weights = document["preprocessing"], document["weights"]
        sides = preprocessing["canvas"]
        canvas: CanvasSize = tuple(sides) if isinstance(sides, list) else sides
        check_size(canvas)
        path, digest = folder / str(weights["file"]), weights["sha256"]
        licence = str(document["licence"])
        evaluations = [dict(row) for row in document.get("evaluations", ())]
        head: Head = document.get("head", "query")
        budget = float(document["budget"]) if "budget" in document else _default_budget(config)
        normalised = tuple(preprocessing["mean"]), tuple(preprocessing["std"])
        encoder = config.encoder_config()
    except InputError as error:
        raise InputError(f"{origin}: damaged model configuration ({error})") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{origin}: damaged model configuration ({error!r})") from None
    if normalised != (encoder.mean, encoder.std):
        raise InputError(f"{origin}: mean and std differ from those of encoder '{config.encoder}'; save the model anew")
    if path.suffix != ".safetensors":
        raise InputError(
            f"{origin}: the weights '{weights['file']}' are no safetensors file, the only kind that is read"
        )
    if path.parent != folder or not is_there(path):
        raise InputError(f"{folder}: the weights '{weights['file']}' are not there; copy the whole folder")
    if file_digest(path) != digest:
        raise InputError(f"{path}: sha256 differs from the one in {CONFIG_FILE}; the file is damaged, copy it again")
    state = {name: _full(tensor) for name, tensor in read_state(path).items()}
    # Known before anything is built: a slip of the file could ask for millions of layers.
    if max(config.encoder_layers, config.decoder_layers, encoder.depth) > len(state):
        raise InputError(f"{origin}: asks for more layers than the weights '{path.name}' have tensors")
    table = document.get("retention")
    return Detector(
        filled(config, state, str(path)),
        canvas=canvas,
        table=None if table is None else RetentionTable.from_document(table, origin),
        licence=licence,
        evaluations=evaluations,
        head=head,
        budget=budget,
    )


def _default_budget(config: DetectorConfig) -> float:
    """The budget of a model saved before models named theirs: without a fusion none was trained on coarse tokens."""
    return DEFAULT_BUDGET if config.encoder_config().fusion else 1.0


def is_saved(folder: Path) -> bool:
    """Whether a folder's config.json is that of a detector of this library."""
    try:
        return bool(read_json(folder / CONFIG_FILE).get("format") == FORMAT)
    except (InputError, AttributeError):
        return False


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a saved detector."""
    path = folder / CONFIG_FILE
    if not is_there(path):
        raise InputError(f"{folder}: not a saved model, which has a {CONFIG_FILE}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path}: not the configuration of a vgtok detector")
    if document.get("version") != FORMAT_VERSION:
        raise InputError(f"{path}: model of version {document.get('version')}; this release reads {FORMAT_VERSION}")
    return document


def filled(config: DetectorConfig, state: Mapping[str, Tensor], origin: str) -> CoDetr:
    """A model made of exactly these tensors; `origin` is what errors call them."""
    # On the meta device nothing is initialised only to be overwritten.
    try:
        with torch.device("meta"):
            model = CoDetr(config)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{origin}: no model of its configuration can be built ({error})") from None
    check_state(state, model, origin)
    model.load_state_dict(dict(state), assign=True)
    return model


def file_digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_for(config: DetectorConfig, model: CoDetr, *, half: bool) -> dict[str, Tensor]:
    """The model's tensors that a model of `config` has, on the host."""
    with torch.device("meta"):
        wanted = CoDetr(config).state_dict().keys()
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items() if name in wanted}
    return {name: _halved(tensor, name) for name, tensor in state.items()} if half else state


def _halved(tensor: Tensor, name: str) -> Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    stored = tensor.half()
    if not torch.equal(stored.isfinite(), tensor.isfinite()):
        raise InputError(f"half: {name} holds values beyond fp16; save in full precision")
    return stored


def _full(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _write_weights(state: dict[str, Tensor], draft: Path) -> Path:
    """Write the tensors to `draft`, then give the file the name its content has."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        # Written as a private file; a model is as readable as the folder it lies in says.
        permissions = draft.stat().st_mode
        save_file(state, draft, metadata={"format": "pt"})
        draft.chmod(permissions)
        path = draft.with_name(f"model-{file_digest(draft)[:12]}.safetensors")
        return draft.replace(path)
    except SafetensorError as error:
        raise InputError(f"{draft.parent}: the weights cannot be written ({error})") from None


def _document(detector: Detector, config: DetectorConfig, weights: Path) -> dict[str, Any]:
    encoder = config.encoder_config()
    canvas = detector.canvas
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "config": config.to_dict(),
        "preprocessing": {
            "canvas": canvas if canvas == "native" else list(canvas),
            "colour": "RGB",
            "mean": list(encoder.mean),
            "std": list(encoder.std),
        },
        "retention": None if detector.table is None else detector.table.to_document(),
        "licence": detector.licence,
        # Without its own head a model predicts by the one that is always there.
        "head": detector.head if detector.head in config.auxiliary else "query",
        "budget": detector.budget,
        "evaluations": [dict(row) for row in detector.evaluations],
        "weights": {"file": weights.name, "sha256": file_digest(weights)},
    }
