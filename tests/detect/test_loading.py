"""Names to detectors: each kind of name, and what each says when there is nothing behind it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

import vgtok
from tests.detect.small_models import SMALL, small_detector
from tests.devices import HALVES
from vgtok.detect import checkpoint
from vgtok.detect import loading as hub
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
    assert same(original, vgtok.load(tmp_path / "vgtok-test", dtype="float32"))
    monkeypatch.setattr(hub, "shipped_models", lambda: {"vgtok-test": tmp_path / "vgtok-test"})
    assert same(original, vgtok.load("vgtok-test", dtype="float32"))


@pytest.mark.usefixtures("released_is_small")
def test_a_checkpoint_file(tmp_path: Path) -> None:
    original = small_detector()
    write_co_detr(original, tmp_path / "released.pth")
    assert same(original, vgtok.load(tmp_path / "released.pth", dtype="float32"))


def test_a_hub_name_is_a_saved_model(hub_folder: Path) -> None:
    original = small_detector()
    save_detector(original, hub_folder)
    assert same(original, vgtok.load("someone/model", dtype="float32"))
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
    assert same(original, vgtok.load("someone/model", dtype="float32"))
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


class LocalHub:
    """Stands for the hub's API: a repository is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[dict[str, Any]] = []

    def create_repo(self, repository: str, **settings: Any) -> None:
        self.calls.append({"repository": repository, **settings})

    def upload_folder(self, *, folder_path: Path, delete_patterns: list[str], **settings: Any) -> SimpleNamespace:
        self.calls.append(settings)
        for pattern in delete_patterns:
            for file in self.folder.glob(pattern):
                file.unlink()
        shutil.copytree(folder_path, self.folder, dirs_exist_ok=True)
        return SimpleNamespace(commit_url="https://hub/commit/1")


def test_saved_as_the_ecosystem_does(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    original = small_detector()
    original.save_pretrained(folder)
    weights = next(folder.glob("*.safetensors")).name
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", weights]
    assert same(original, vgtok.Detector.from_pretrained(folder))
    assert "# small\n" in (folder / "README.md").read_text()
    (folder / "README.md").write_text("my own words")
    original.save_pretrained(str(folder), auxiliary=(), half=True)
    assert (folder / "README.md").read_text() == "my own words"
    assert vgtok.Detector.from_pretrained(folder).model.config.auxiliary == ()


def test_pushed_and_fetched_again(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalHub(hub_folder)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: local)
    (hub_folder / "model-old.safetensors").touch()
    original = vgtok.Detector(small_detector().model, license="ask first", evaluations=[{"data": "x", "AP": 1.5}])
    assert original.push_to_hub("someone/model", private=True, message="first") == "https://hub/commit/1"
    assert local.calls == [
        {"repository": "someone/model", "private": True, "exist_ok": True},
        {"repo_id": "someone/model", "commit_message": "first"},
    ]
    assert sorted(file.name for file in hub_folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    for again in (vgtok.Detector.from_pretrained("someone/model"), vgtok.load("someone/model", dtype="float32")):
        assert same(original, again)
        assert (again.license, again.evaluations) == ("ask first", ({"data": "x", "AP": 1.5},))
    assert 'vgtok.load("someone/model")' in (hub_folder / "README.md").read_text()


def test_a_revision_goes_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_detector(small_detector(), tmp_path)

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert (repository, revision) == ("someone/model", "v2")
        assert allow_patterns == ["config.json", "*.safetensors"]
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    vgtok.Detector.from_pretrained("someone/model", revision="v2")
    vgtok.Detector.from_pretrained("someone/model@v2")


def test_only_safetensors_are_read(hub_folder: Path) -> None:
    (hub_folder / "pytorch_model.pth").touch()
    with pytest.raises(InputError, match=r"on the hub is no vgtok model; vgtok.load also reads"):
        vgtok.Detector.from_pretrained("someone/model")
    path = save_detector(small_detector(), hub_folder)
    document = json.loads((hub_folder / "config.json").read_text())
    document["weights"]["file"] = path.rename(hub_folder / "model.pth").name
    (hub_folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"the weights 'model.pth' are no safetensors file"):
        vgtok.Detector.from_pretrained("someone/model")
    with pytest.raises(InputError, match=r"'runs/missing/model' is neither a folder, a hub name"):
        vgtok.Detector.from_pretrained("runs/missing/model")


def test_offline_is_one_sentence_with_the_real_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="not in the hub's cache, and the hub cannot be reached") as fetching:
        vgtok.Detector.from_pretrained("someone/model")
    with pytest.raises(InputError, match="needs the hub, and HF_HUB_OFFLINE is set; unset it") as pushing:
        small_detector().push_to_hub("someone/model")
    assert all("\n" not in str(problem.value) for problem in (fetching, pushing))
    with pytest.raises(InputError, match="'model' is not the name of a repository, owner/name"):
        small_detector().push_to_hub("model")


def test_a_push_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_repo(*_: object, **__: object) -> None:
        raise OSError("connection reset\nmore")

    monkeypatch.setattr("huggingface_hub.HfApi", lambda: SimpleNamespace(create_repo=create_repo))
    with pytest.raises(
        InputError, match=r"could not be uploaded \(connection reset\); check the connection and log in"
    ):
        small_detector().push_to_hub("someone/model")


@pytest.mark.parametrize("name", ["-/-", "n" * 300, "a/" + "n" * 300, "a\0b", "owner/na--me"])
def test_names_that_cannot_be_are_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for load in (hub.load, hub.from_pretrained):
        with pytest.raises(InputError, match="model: "):
            load(name)


@pytest.mark.parametrize(("device", "dtype"), HALVES)
def test_half_precision_finds_the_same_objects(device: str, dtype: str, tmp_path: Path) -> None:
    save_detector(small_detector(), tmp_path / "model")
    exact = vgtok.load(tmp_path / "model", device=device, dtype="float32")
    half = vgtok.load(tmp_path / "model", device=device, dtype=dtype)
    assert (exact.precision, half.precision, half.device.type) == ("float32", dtype, device)
    pixels = np.random.default_rng(1).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    for head in ("query", "atss"):
        expected, found, again = (
            model(pixels, budget=0.5, head=head, score_threshold=0.0, max_detections=5) for model in (exact, half, half)
        )
        assert np.array_equal(found.boxes, again.boxes)
        assert np.array_equal(found.scores, again.scores)
        np.testing.assert_allclose(found.scores[0], expected.scores[0], rtol=0.05)
    with pytest.raises(InputError, match="load the model with dtype='float32'"):
        save_detector(half, tmp_path / "half")
    with pytest.raises(InputError, match=r"converted to .* before; load it again"):
        half.to(device, "float32")


def test_device_and_precision_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device: 'cuda:99' is not present here"):
        vgtok.load(tmp_path / "missing", device="cuda:99")
    with pytest.raises(InputError, match="dtype: 'int4' is not one of"):
        vgtok.load(tmp_path / "missing", dtype="int4")
