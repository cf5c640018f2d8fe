"""The loop: it learns, goes on after kill -9 as if nothing had happened, and splits over processes without a trace."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vgtok.detect.saving import save_detector
from vgtok.errors import InputError
from vgtok.train import loop
from vgtok.train.journal import read_metrics
from vgtok.train.outcome import detector_of
from vgtok.train.state import checkpoints, load_state, newest

from .small import small_recipe

_SETTINGS = ["canvas=128x128", "batch=2", "warmup=2", "evaluate=0", "precision=fp32"]


def _command(out: Path, *settings: str) -> list[str]:
    chosen = [word for setting in (*_SETTINGS, *settings) for word in ("--set", setting)]
    return ["-m", "vgtok", "train", "synthetic-smoke", "--out", str(out), *chosen]


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", **more}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 26 steps nobody disturbed."""
    run = tmp_path_factory.mktemp("straight")
    loop.train(small_recipe(steps=26, checkpoint=3), run)
    return run


def test_losses_fall_and_every_step_is_reported(straight: Path) -> None:
    metrics = read_metrics(straight)
    assert [entry["step"] for entry in metrics] == list(range(1, 27))
    assert all({"loss", "norm", "rate", "seconds", "atss/class", "queries/giou"} <= entry.keys() for entry in metrics)
    first, last = (sum(entry["loss"] for entry in part) for part in (metrics[:8], metrics[-8:]))
    assert last < first
    assert list((straight / "tensorboard").iterdir())


def test_after_kill_9_the_losses_are_those_of_the_undisturbed_run(straight: Path, tmp_path: Path) -> None:
    command = [sys.executable, *_command(tmp_path, "steps=26", "checkpoint=3")]
    process = subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE)
    while len(read_metrics(tmp_path)) < 5:
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stopped = newest(tmp_path)
    assert stopped is not None
    assert load_state(stopped).step < 26
    subprocess.run(command, env=_environment(), check=True, capture_output=True)
    wanted, got = read_metrics(straight), read_metrics(tmp_path)
    assert [entry["step"] for entry in got] == [entry["step"] for entry in wanted]
    # At least twenty steps follow the kill.
    for one, other in zip(wanted, got, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    recipe = small_recipe(steps=2, checkpoint=1, clip=1e9, warmup=0)
    loop.train(recipe, tmp_path / "one")
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(20000 + os.getpid() % 20000)]
    command = [sys.executable, *launch, *_command(tmp_path / "two", "steps=2", "checkpoint=1", "clip=1e9", "warmup=0")]
    subprocess.run(command, env=_environment(), check=True, capture_output=True)
    one, two = (load_state(tmp_path / name / "step-000001") for name in ("one", "two"))
    moments = [
        torch.cat([entry["exp_avg"].flatten() for entry in state.optimiser["state"].values()]) for state in (one, two)
    ]
    # After one step the first moment is a tenth of the gradient.
    assert torch.allclose(moments[0], moments[1], rtol=1e-4, atol=1e-6)
    losses = [[entry["loss"] for entry in read_metrics(tmp_path / name)] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_broken_loss_stops_with_the_last_checkpoint_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(steps=4, checkpoint=1)
    real = loop.Trainer.gradients

    def breaking(self: loop.Trainer, lessons: list[loop.Lesson]) -> dict[str, float]:
        report = real(self, lessons)
        return {**report, "loss": float("nan")} if lessons[0].number >= 4 else report

    monkeypatch.setattr(loop.Trainer, "gradients", breaking)
    with pytest.raises(InputError, match=r"loss: nan .* at step 2.*last checkpoint is intact"):
        loop.train(recipe, tmp_path)
    last = newest(tmp_path)
    assert last is not None
    assert load_state(last).step == 2
    assert all(tensor.isfinite().all() for tensor in load_state(last).model.values() if tensor.is_floating_point())


def test_a_run_becomes_a_model(straight: Path, tmp_path: Path) -> None:
    detector = detector_of(straight)
    assert (detector.names, detector.head) == (("car",), "atss")
    assert detector.canvas == (128, 128)
    last = checkpoints(straight)[-1]
    again = detector_of(last)
    for name, tensor in load_state(last).average.items():
        assert torch.equal(detector.model.state_dict()[name], tensor)
        assert torch.equal(again.model.state_dict()[name], tensor)
    assert save_detector(detector, tmp_path, auxiliary=("atss",), half=True).is_file()
    with pytest.raises(InputError, match="neither a training run"):
        detector_of(tmp_path)


def test_validation_scores_the_average(tmp_path: Path) -> None:
    loop.train(small_recipe(steps=2, evaluate=2, evaluate_images=2), tmp_path)
    scores = [entry for entry in read_metrics(tmp_path) if "AP50" in entry]
    assert len(scores) == 1
    assert 0 <= scores[0]["AP50"] <= 100


def test_the_folder_of_another_recipe_is_refused(straight: Path) -> None:
    with pytest.raises(InputError, match=r"step-000026: does not fit this CoDetr; .*of another shape"):
        loop.train(small_recipe(classes=("car", "van")), straight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": ""}, "data: this recipe needs a data set"),
        ({"steps": 0}, "steps: neither steps nor epochs"),
        ({"encoder_weights": "nowhere.safetensors"}, "encoder_weights: 'nowhere.safetensors'"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        loop.train(small_recipe(**changes), tmp_path)
