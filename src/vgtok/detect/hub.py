"""A model's name to a detector: shipped with the package, a folder, a Co-DETR checkpoint, a repository on the hub."""

import re
from importlib.resources import files
from pathlib import Path

import torch

from vgtok.detect.checkpoint import load_co_detr
from vgtok.detect.detector import Detector
from vgtok.detect.registry import DETECTORS
from vgtok.detect.saving import file_digest, is_saved, load_detector
from vgtok.errors import InputError, VGTokError

_CHECKPOINTS = (".pth", ".pt", ".bin", ".safetensors")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def shipped_models() -> dict[str, Path]:
    """Name and folder of every model in the package."""
    folder = Path(str(files("vgtok.detect") / "shipped"))
    return {path.name: path for path in sorted(folder.iterdir()) if is_saved(path)} if folder.is_dir() else {}


def load(name_or_path: str | Path) -> Detector:
    """The detector of that name, on the GPU where there is one.

    A name is that of a shipped model, a folder `save_detector` wrote, a released Co-DETR checkpoint file, or a
    repository on the hub as owner/name or owner/name@revision, fetched once and then kept in the hub's cache.
    """
    detector = _found(name_or_path)
    return detector.to("cuda") if torch.cuda.is_available() else detector


def _found(name_or_path: str | Path) -> Detector:
    name, path = str(name_or_path), Path(name_or_path)
    shipped = shipped_models()
    if name in shipped:
        return load_detector(shipped[name])
    if path.is_dir():
        return load_detector(path)
    if path.is_file():
        return load_co_detr(path)
    if name in DETECTORS:
        raise InputError(
            f"model: '{name}' is a configuration without weights; train it with 'vgtok train', or convert a released "
            "checkpoint with 'vgtok convert co-detr'"
        )
    if path.suffix not in _CHECKPOINTS and _HUB_NAME.fullmatch(name):
        return _from_hub(name)
    raise InputError(
        f"model: '{name}' is neither a folder, a checkpoint file, a hub name (owner/name) nor a shipped model "
        f"({', '.join(shipped) or 'none shipped'})"
    )


def _from_hub(name: str) -> Detector:
    folder = fetch(name)
    if is_saved(folder):
        return load_detector(folder)
    candidates = [path for path in sorted(folder.iterdir()) if path.suffix in _CHECKPOINTS]
    if len(candidates) != 1:
        listed = ", ".join(path.name for path in candidates) or "none"
        raise InputError(
            f"model: '{name}' on the hub is no vgtok model and has not one checkpoint but: {listed}; "
            "download the one you want and give its path"
        )
    # The cache names a large file by the digest the hub announced for it.
    announced = candidates[0].resolve().name
    if _SHA256.fullmatch(announced) and file_digest(candidates[0]) != announced:
        raise InputError(f"{candidates[0]}: sha256 differs from the hub's; delete the file and load again")
    return load_co_detr(candidates[0])


def fetch(name: str) -> Path:
    """Bring owner/name[@revision] from the hub, or from its cache where there is no network; returns the folder."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise VGTokError("model: hub names need huggingface_hub; pip install 'vgtok[detect]'") from None
    repository, _, revision = name.partition("@")
    patterns = ["config.json", *(f"*{suffix}" for suffix in _CHECKPOINTS)]
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except RepositoryNotFoundError:
        raise InputError(f"model: '{name}' is no folder here, and on the hub no repository that can be read") from None
    except LocalEntryNotFoundError:
        raise InputError(
            f"model: '{name}' is no folder here and not in the hub's cache, and the hub cannot be reached; connect "
            "once, or download the model elsewhere and give its folder"
        ) from None
    except (HfHubHTTPError, OSError) as error:
        raise InputError(f"model: '{name}' could not be fetched from the hub ({str(error).splitlines()[0]})") from None
