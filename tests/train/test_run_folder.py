"""Checkpoints: whole or absent, pruned, and safe from a full disk."""

import errno
from pathlib import Path

import pytest
import torch

from vgtok.errors import InputError
from vgtok.train import run_folder as checkpoint
from vgtok.train.run_folder import Checkpoint, checkpoints, latest_checkpoint, load_checkpoint, save_checkpoint


def _state(step: int) -> Checkpoint:
    tensors = {"a": torch.full((3, 2), float(step)), "b": torch.tensor(step)}
    return Checkpoint(step, step * 1.5, tensors, {"a": tensors["a"] + 1}, {"state": {0: {"step": torch.tensor(1.0)}}})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, _state(7), 0)
    back = load_checkpoint(folder)
    assert (back.step, back.seconds) == (7, 10.5)
    assert torch.equal(back.model["a"], _state(7).model["a"])
    assert torch.equal(back.ema["a"], _state(7).ema["a"])
    assert float(back.optimizer["state"][0]["step"]) == 1.0


def test_old_ones_go_but_for_the_last_two_and_those_to_keep(tmp_path: Path) -> None:
    for step in range(2, 14, 2):
        save_checkpoint(tmp_path, _state(step), 4)
    assert [folder.name for folder in checkpoints(tmp_path)] == [f"step-{n:06d}" for n in (4, 8, 10, 12)]
    assert not (tmp_path / "step-000004" / "optimizer.pt").exists()
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000012"


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, _state(2), 0)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(InputError, match=r"No space left.*step-000002, is intact"):
        save_checkpoint(tmp_path, _state(4), 0)
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-000002"]
    assert load_checkpoint(tmp_path / "step-000002").step == 2


def test_what_a_kill_left_half_written_is_not_a_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _state(2), 0)
    draft = tmp_path / ".step-000004.draft"
    draft.mkdir()
    (draft / "model.safetensors").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000002"
    assert load_checkpoint(save_checkpoint(tmp_path, _state(4), 0)).step == 4


def test_damage_is_named(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, _state(2), 0)
    (folder / "ema.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="step-000002: damaged checkpoint"):
        load_checkpoint(folder)
