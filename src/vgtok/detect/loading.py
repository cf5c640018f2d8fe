"""Load a detector by name: shipped, saved in a folder, a released checkpoint, or on the hub; push one to the hub."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from vgtok.detect.checkpoint import load_co_detr
from vgtok.detect.config import DETECTORS, Auxiliary
from vgtok.detect.detector import Detector
from vgtok.detect.saving import CONFIG_FILE, file_digest, is_saved, load_detector, read_config, save_with_card
from vgtok.encode.precision import find_device, find_dtype
from vgtok.errors import InputError, VGTokError
from vgtok.files import is_there, write_text

_CHECKPOINTS = (".pth", ".pt", ".bin", ".safetensors")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def shipped_models() -> dict[str, Path]:
    """Return the name and folder of every model in the package."""
    folder = Path(str(files("vgtok.detect") / "shipped"))
    return {path.name: path for path in sorted(folder.iterdir()) if is_saved(path)} if folder.is_dir() else {}


def load(
    name_or_path: str | Path, *, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> Detector:
    """Load a detector onto a device, to run in a precision.

    The name is that of a shipped model, a folder written by `save_detector`, a released Co-DETR checkpoint file, or a
    repository on the hub as owner/name or owner/name@revision, which is downloaded once and then read from the cache.
    After `transformers:`, a folder or repository with a detector of that library, run at a budget of 1 by default.
    `device` is cpu, cuda, cuda:N or mps [default: a GPU if there is one]. `dtype` is float32, float16 or bfloat16
    [default: bfloat16 where the device is faster in it, float16 on older GPUs, else float32]; on a CPU a note says so
    once if it is not float32.
    """
    place = find_device(device)
    chosen = find_dtype(dtype, place)
    return find_detector(name_or_path).to(place, chosen)


def from_pretrained(name_or_path: str | Path, revision: str | None = None) -> Detector:
    """Load a detector saved by this library, by shipped name, folder or hub name; reads only safetensors."""
    name, path = str(name_or_path), Path(name_or_path)
    shipped = shipped_models()
    if name in shipped or (is_there(path) and path.is_dir()):
        return load_detector(shipped.get(name, path))
    named = name if revision is None else f"{name}@{revision}"
    if not _HUB_NAME.fullmatch(named):
        raise InputError(
            f"model: '{name}' is neither a folder, a hub name (owner/name) nor a shipped model "
            f"({', '.join(shipped) or 'none shipped'})"
        )
    folder = fetch(named, [".safetensors"])
    if not is_saved(folder):
        raise InputError(f"model: '{named}' on the hub is no vgtok model; vgtok.load also reads Co-DETR checkpoints")
    return load_detector(folder)


def push(
    detector: Detector,
    repository: str,
    *,
    private: bool,
    message: str,
    auxiliary: tuple[Auxiliary, ...] | None,
    half: bool,
) -> str:
    """Upload a detector with its model card to owner/name as one commit; return the commit's address."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled
    except ImportError:
        raise VGTokError("push_to_hub: needs huggingface_hub; pip install 'vgtok[detect]'") from None
    if "@" in repository or not _HUB_NAME.fullmatch(repository):
        raise InputError(f"push_to_hub: '{repository}' is not the name of a repository, owner/name")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _use_hub_name(save_with_card(detector, folder, repository, auxiliary=auxiliary, half=half), folder)
        api = HfApi()
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            # Weights of an earlier push under another name would otherwise stay.
            commit = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=message, delete_patterns=["*.safetensors"]
            )
        except OfflineModeIsEnabled:
            raise InputError(
                f"push_to_hub: '{repository}' needs the hub, and HF_HUB_OFFLINE is set; unset it"
            ) from None
        # Refusals of the hub and failures of its transport share no public class across releases.
        except Exception as error:
            raise InputError(
                f"push_to_hub: '{repository}' could not be uploaded ({_first_line(error)}); check the connection and "
                "log in with 'hf auth login'"
            ) from None
    return str(commit.commit_url)


def _use_hub_name(weights: Path, folder: Path) -> None:
    """Rename the weights to model.safetensors, the hub's usual name: a commit replaces all files at once."""
    document = read_config(folder)
    document["weights"]["file"] = weights.rename(folder / "model.safetensors").name
    write_text(folder / CONFIG_FILE, json.dumps(document, indent=1) + "\n")


def find_detector(name_or_path: str | Path) -> Detector:
    """Load the detector that `load` returns, on the CPU in float32."""
    name, path = str(name_or_path), Path(name_or_path)
    if name.startswith("transformers:"):
        from vgtok.hosts.loading import load_host

        return load_host(name)
    shipped = shipped_models()
    if name in shipped:
        return load_detector(shipped[name])
    if path.suffix.lower() == ".onnx":
        raise InputError(
            f"model: {name} is an ONNX graph; 'vgtok detect', 'evaluate' and vgtok.OnnxDetector run it without torch"
        )
    if is_there(path):
        return load_detector(path) if path.is_dir() else load_co_detr(path)
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


def is_hub_name(name: str) -> bool:
    """Return whether a name is written as owner/name or owner/name@revision."""
    return _HUB_NAME.fullmatch(name) is not None


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
    # The cache names a large file by the digest the hub announced.
    announced = candidates[0].resolve().name
    if _SHA256.fullmatch(announced) and file_digest(candidates[0]) != announced:
        raise InputError(f"{candidates[0]}: sha256 differs from the hub's; delete the file and load again")
    return load_co_detr(candidates[0])


def fetch(name: str, suffixes: Sequence[str] = _CHECKPOINTS) -> Path:
    """Download owner/name[@revision] from the hub, or find it in the cache if offline; return the folder.

    Only config.json and files with one of the suffixes are downloaded.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise VGTokError("model: hub names need huggingface_hub; pip install 'vgtok[detect]'") from None
    repository, _, revision = name.partition("@")
    patterns = [CONFIG_FILE, *(f"*{suffix}" for suffix in suffixes)]
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except RepositoryNotFoundError:
        raise InputError(f"model: '{name}' is no folder here, and on the hub no repository that can be read") from None
    except LocalEntryNotFoundError:
        raise InputError(
            f"model: '{name}' is no folder here and not in the hub's cache, and the hub cannot be reached; connect "
            "once, or download the model elsewhere and give its folder"
        ) from None
    # huggingface_hub raises ValueError on invalid names.
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(f"model: '{name}' could not be fetched from the hub ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
