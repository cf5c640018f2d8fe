"""Names to detectors: each kind of name, and what each says when there is nothing behind it."""

from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

import vgtok
from tests.detect.small_models import SMALL, small_detector
from vgtok.detect import checkpoint, hub
from vgtok.detect.checkpoint import write_co_detr
from vgtok.detect.saving import file_digest, save_detector
from vgtok.errors import InputError


@pytest.fixture
def hub_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for what the hub's cache returns for any repository."""
    folder = tmp_path / "snapshot"
    folder.mkdir()

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert (repository, revision) == ("someone/model", None)
        assert "config.json" in allow_patterns
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return folder


@pytest.fixture
def released_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.convert_co_detr, "__defaults__", (None, SMALL))


def same(first: vgtok.Detector, second: vgtok.Detector) -> bool:
    state = second.model.state_dict()
    return all(torch.equal(tensor, state[name]) for name, tensor in first.model.state_dict().items())


def test_a_folder_and_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = small_detector()
    save_detector(original, tmp_path / "vgtok-test")
    assert same(original, vgtok.load(tmp_path / "vgtok-test"))
    monkeypatch.setattr(hub, "shipped_models", lambda: {"vgtok-test": tmp_path / "vgtok-test"})
    assert same(original, vgtok.load("vgtok-test"))


@pytest.mark.usefixtures("released_is_small")
def test_a_checkpoint_file(tmp_path: Path) -> None:
    original = small_detector()
    write_co_detr(original, tmp_path / "released.pth")
    assert same(original, vgtok.load(tmp_path / "released.pth"))


def test_a_hub_name_is_a_saved_model(hub_folder: Path) -> None:
    original = small_detector()
    save_detector(original, hub_folder)
    assert same(original, vgtok.load("someone/model"))
    next(hub_folder.glob("*.safetensors")).write_bytes(b"damaged")
    with pytest.raises(InputError, match="sha256 differs"):
        vgtok.load("someone/model")


@pytest.mark.usefixtures("released_is_small")
def test_a_hub_name_is_a_released_checkpoint(hub_folder: Path, tmp_path: Path) -> None:
    original = small_detector()
    write_co_detr(original, tmp_path / "released.pth")
    # The cache keeps a large file under its digest and links to it.
    blob = tmp_path / file_digest(tmp_path / "released.pth")
    (tmp_path / "released.pth").rename(blob)
    (hub_folder / "pytorch_model.pth").symlink_to(blob)
    assert same(original, vgtok.load("someone/model"))
    blob.write_bytes(blob.read_bytes() + b"\0")
    with pytest.raises(InputError, match="sha256 differs from the hub's"):
        vgtok.load("someone/model")
    (hub_folder / "second.pth").touch()
    with pytest.raises(InputError, match=r"has not one checkpoint but: pytorch_model.pth, second.pth"):
        vgtok.load("someone/model")


def test_offline_is_told_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(InputError, match="not in the hub's cache, and the hub cannot be reached; connect once"):
        vgtok.load("someone/model")

    def broken(*_: object, **__: object) -> str:
        raise OSError("disk full\nmore")

    monkeypatch.setattr("huggingface_hub.snapshot_download", broken)
    with pytest.raises(InputError, match=r"could not be fetched from the hub \(disk full\)"):
        vgtok.load("someone/model")


def test_names_without_weights(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a configuration without weights; train it"):
        vgtok.load("co-detr-vit-tiny")
    with pytest.raises(InputError, match="'nonsense' is neither a folder, a checkpoint file, a hub name"):
        vgtok.load("nonsense")
    with pytest.raises(InputError, match=r"runs/missing.pth' is neither"):
        vgtok.load("runs/missing.pth")
    with pytest.raises(InputError, match="not a saved model"):
        vgtok.load(tmp_path)
