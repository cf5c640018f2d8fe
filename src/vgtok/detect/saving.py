"""Save a detector as a folder of config.json, safetensors weights and model card, and load it again.

Folders are written whole or not at all; loading checks every tensor and the digest of the weights.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_TOKENIZER
from vgtok.detect.config import Auxiliary, DetectorConfig, Head
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.encode.loading import check_state, read_state
from vgtok.errors import InputError
from vgtok.files import drafted, is_there, read_json, replacing, write_text
from vgtok.tokenize.canvas import CanvasSize, check_size
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import preset

_TAGS = ("vgtok", "co-detr", "object-detection", "small-object-detection", "aerial-imagery")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


def model_card(document: Mapping[str, Any], name: str) -> str:
    """Return the model card, Markdown with the hub's front matter, of a config.json; the model loads by `name`."""
    config = DetectorConfig.from_dict(document["config"])
    budget = document.get("budget", DEFAULT_BUDGET)
    sections = [
        _front_matter(str(document["license"])),
        f"# {name.rpartition('/')[2]}",
        f"A Co-DETR object detector that reads each image at the token budget you choose: {config.classes} classes, "
        f"encoder {config.encoder}, packed 16, 32 and 64 px tokens.",
        "## Use it",
        "```sh\npip install '.[detect]'      # in a copy of the VGTok repository\n```",
        f"```python\nimport vgtok\n\ndetector = vgtok.load({json.dumps(name)})\n"
        f'result = detector("frame.jpg", budget={budget:.2f})   # .boxes .scores .names\n'
        'result.plot().save("found.png")\n```',
        "## What it is",
        _table([{"property": key, "value": value} for key, value in _properties(config, document).items()]),
        "## Classes",
        ", ".join(config.names),
    ]
    if document.get("evaluations"):
        sections += ["## What was measured", _table(document["evaluations"])]
    sections += ["## License", str(document["license"]) or "Not stated; ask whoever trained it before you rely on it."]
    return "\n\n".join(sections) + "\n"


def _front_matter(license: str) -> str:
    # The hub knows licenses by identifier; a sentence goes to the end of the card.
    known = license.lower() if _IDENTIFIER.fullmatch(license) else "other" if license else "unknown"
    tags = "\n".join(f"- {tag}" for tag in _TAGS)
    lines = ["library_name: vgtok", "pipeline_tag: object-detection", f"license: {known}", f"tags:\n{tags}"]
    return "\n".join(["---", *lines, "---"])


def _properties(config: DetectorConfig, document: Mapping[str, Any]) -> dict[str, str]:
    with torch.device("meta"):
        parts = CoDetr(config).parts()
    preprocessing = document["preprocessing"]
    canvas = preprocessing["canvas"]
    sizes = ", ".join(f"{part.replace('_', ' ')} {count / 1e6:.2f}M" for part, count in parts.items() if count)
    return {
        "parameters": f"{sum(parts.values()) / 1e6:.2f}M ({sizes})",
        "queries": str(config.queries),
        "head that predicts": f"{document.get('head', 'query')}{', sparse' if document.get('sparse_head') else ''}",
        "tokenizer": document.get("tokenizer", DEFAULT_TOKENIZER),
        "strides": ", ".join(map(str, config.strides)),
        "auxiliary heads": ", ".join(config.auxiliary) or "none, for inference only",
        "canvas": "the image's own size" if canvas == "native" else f"fits inside {canvas[0]} x {canvas[1]} px",
        "pixels": f"{preprocessing['color']}, mean {preprocessing['mean']}, std {preprocessing['std']}",
        "retention table": "yes" if document.get("retention") else "no",
        "sha256 of the weights": document["weights"]["sha256"],
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table with the columns of all rows."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


FORMAT = "vgtok-detector"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
CARD_FILE = "README.md"


def save_detector(
    detector: Detector, folder: str | Path, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
) -> Path:
    """Write a detector to a folder, whole or not at all; return the path of the weights.

    `auxiliary` names the auxiliary heads to keep [default: all]; pass () for a model that only predicts. `half` stores
    fp16; loading returns fp32.
    """
    folder = Path(folder)
    if detector.dtype is not torch.float32:
        raise InputError(
            f"{folder}: weights converted to {detector.precision} are not saved; load the model with dtype='float32'"
        )
    config = detector.model.config
    kept = config.auxiliary if auxiliary is None else auxiliary
    if lacking := set(kept) - set(config.auxiliary):
        raise InputError(f"auxiliary: this model has no {', '.join(sorted(lacking))} head to keep")
    config = replace(config, auxiliary=tuple(head for head in config.auxiliary if head in kept))
    state = _state_for(config, detector.model, half=half)
    with replacing(folder / CONFIG_FILE) as reserved, drafted(folder / "model") as draft:
        # Reserving the names first creates the folder and checks that it is writable.
        weights = _write_weights(state, draft)
        reserved.write_text(json.dumps(_document(detector, config, weights), indent=1) + "\n", encoding="utf-8")
    for stale in folder.glob("model*.safetensors"):
        if stale != weights:
            stale.unlink()
    return weights


def save_with_card(
    detector: Detector, folder: Path, name: str, *, auxiliary: tuple[Auxiliary, ...] | None = None, half: bool = False
) -> Path:
    """Run `save_detector` and write the card of a model called `name`; keep a card that is there, it may be edited."""
    weights = save_detector(detector, folder, auxiliary=auxiliary, half=half)
    if not (folder / CARD_FILE).exists():
        write_text(folder / CARD_FILE, model_card(read_config(folder), name))
    return weights


def load_detector(folder: str | Path) -> Detector:
    """Load a folder written by `save_detector`; raise unless every tensor is present, fits and is what was saved."""
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
        license = str(document["license"])
        evaluations = [dict(row) for row in document.get("evaluations", ())]
        head: Head = document.get("head", "query")
        sparse_head = bool(document.get("sparse_head", False))
        # Models of earlier versions were read by this one.
        tokenizer_name = document.get("tokenizer", DEFAULT_TOKENIZER)
        preset(tokenizer_name)
        budget = float(document["budget"]) if "budget" in document else _default_budget(config)
        normalized = tuple(preprocessing["mean"]), tuple(preprocessing["std"])
        encoder = config.encoder_config()
    except InputError as error:
        raise InputError(f"{origin}: damaged model configuration ({error})") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{origin}: damaged model configuration ({error!r})") from None
    if normalized != (encoder.mean, encoder.std):
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
    # Checked before anything is built: a damaged file could ask for millions of layers.
    if max(config.encoder_layers, config.decoder_layers, encoder.depth) > len(state):
        raise InputError(f"{origin}: asks for more layers than the weights '{path.name}' have tensors")
    table = document.get("retention")
    return Detector(
        model_from_state(config, state, str(path)),
        canvas=canvas,
        table=None if table is None else RetentionTable.from_document(table, origin),
        license=license,
        evaluations=evaluations,
        head=head,
        budget=budget,
        sparse_head=sparse_head,
        tokenizer_name=tokenizer_name,
    )


def _default_budget(config: DetectorConfig) -> float:
    """Return the budget of a model saved without one; models without fusion were never trained on coarse tokens."""
    return DEFAULT_BUDGET if config.encoder_config().fusion else 1.0


def is_saved(folder: Path) -> bool:
    """Return whether a folder holds a detector saved by this library."""
    try:
        return bool(read_json(folder / CONFIG_FILE).get("format") == FORMAT)
    except (InputError, AttributeError):
        return False


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a saved detector, keys of earlier releases under their present names."""
    path = folder / CONFIG_FILE
    if not is_there(path):
        raise InputError(f"{folder}: not a saved model, which has a {CONFIG_FILE}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path}: not the configuration of a vgtok detector")
    if document.get("version") != FORMAT_VERSION:
        raise InputError(f"{path}: model of version {document.get('version')}; this release reads {FORMAT_VERSION}")
    _rename(document, "licence", "license")
    _rename(document.get("preprocessing"), "colour", "color")
    return document


def _rename(values: Any, old: str, new: str) -> None:
    """Rename a key written by an earlier release."""
    if isinstance(values, dict) and old in values:
        values.setdefault(new, values.pop(old))


def model_from_state(config: DetectorConfig, state: Mapping[str, Tensor], origin: str) -> CoDetr:
    """Build a model of exactly these tensors; errors call them `origin`."""
    # The meta device skips an initialization that would be overwritten.
    try:
        with torch.device("meta"):
            model = CoDetr(config)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{origin}: no model of its configuration can be built ({error})") from None
    check_state(state, model, origin)
    model.load_state_dict(dict(state), assign=True)
    return model


def file_digest(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_for(config: DetectorConfig, model: CoDetr, *, half: bool) -> dict[str, Tensor]:
    """Return the tensors of the model that a model of `config` has, on the CPU."""
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
    """Write the tensors to `draft` and name the file by its digest."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        # safetensors writes a private file; restore the permissions the folder gives.
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
            "color": "RGB",
            "mean": list(encoder.mean),
            "std": list(encoder.std),
        },
        "retention": None if detector.table is None else detector.table.to_document(),
        "license": detector.license,
        # Without its auxiliary head a model predicts by the query head.
        "head": detector.head if detector.head in config.auxiliary else "query",
        "sparse_head": detector.sparse_head,
        "tokenizer": detector.tokenizer_name,
        "budget": detector.budget,
        "evaluations": [dict(row) for row in detector.evaluations],
        "weights": {"file": weights.name, "sha256": file_digest(weights)},
    }
