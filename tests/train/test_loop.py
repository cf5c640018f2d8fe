"""The loop: it learns, goes on after kill -9 as if nothing had happened, and splits over processes without a trace."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from tests.devices import DEVICES
from tests.train.rendered_yolo import write_yolo
from vgtok.data import open_annotated
from vgtok.detect.saving import save_detector
from vgtok.detect.training import LossKinds
from vgtok.errors import InputError
from vgtok.files import locked
from vgtok.train import loop
from vgtok.train.model import initial_model, make_optimizer
from vgtok.train.recipe import branch_recipe
from vgtok.train.run_folder import best_checkpoint, checkpoints, latest_checkpoint, load_checkpoint, read_metrics
from vgtok.train.run_to_model import detector_from_run
from vgtok.train.samples import TrainingSamples

from .small import small_recipe

_SETTINGS = ["canvas=128x128", "batch=2", "warmup_steps=2", "evaluate_every=0", "precision=fp32"]


def _command(out: Path, *settings: str) -> list[str]:
    chosen = [word for setting in (*_SETTINGS, *settings) for word in ("--set", setting)]
    return ["-m", "vgtok", "train", "synthetic-smoke", "--out", str(out), *chosen]


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", **more}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 26 steps nobody disturbed."""
    run = tmp_path_factory.mktemp("straight")
    loop.train(small_recipe(steps=26, checkpoint_every=3), run)
    return run


def test_losses_fall_and_every_step_is_reported(straight: Path) -> None:
    metrics = read_metrics(straight)
    assert [entry["step"] for entry in metrics] == list(range(1, 27))
    assert all(
        {"loss", "grad_norm", "learning_rate", "seconds", "atss/class", "queries/giou"} <= entry.keys()
        for entry in metrics
    )
    first, last = (sum(entry["loss"] for entry in part) for part in (metrics[:8], metrics[-8:]))
    assert last < first
    assert list((straight / "tensorboard").iterdir())


def test_after_kill_9_the_losses_are_those_of_the_undisturbed_run(straight: Path, tmp_path: Path) -> None:
    command = [sys.executable, *_command(tmp_path, "steps=26", "checkpoint_every=3")]
    process = subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE)
    while len(read_metrics(tmp_path)) < 5:
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stopped = latest_checkpoint(tmp_path)
    assert stopped is not None
    assert load_checkpoint(stopped).step < 26
    subprocess.run(command, env=_environment(), check=True, capture_output=True)
    wanted, got = read_metrics(straight), read_metrics(tmp_path)
    assert [entry["step"] for entry in got] == [entry["step"] for entry in wanted]
    # At least twenty steps follow the kill.
    for one, other in zip(wanted, got, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    recipe = small_recipe(steps=2, checkpoint_every=1, max_grad_norm=1e9, warmup_steps=0)
    loop.train(recipe, tmp_path / "one")
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(_port())]
    command = [
        sys.executable,
        *launch,
        *_command(tmp_path / "two", "steps=2", "checkpoint_every=1", "max_grad_norm=1e9", "warmup_steps=0"),
    ]
    subprocess.run(command, env=_environment(), check=True, capture_output=True)
    one, two = (load_checkpoint(tmp_path / name / "step-000001") for name in ("one", "two"))
    moments = [
        torch.cat([entry["exp_avg"].flatten() for entry in state.optimizer["state"].values()]) for state in (one, two)
    ]
    # After one step the first moment is a tenth of the gradient.
    assert torch.allclose(moments[0], moments[1], rtol=1e-4, atol=1e-6)
    losses = [[entry["loss"] for entry in read_metrics(tmp_path / name)] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_broken_loss_stops_with_the_last_checkpoint_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(steps=4, checkpoint_every=1)
    real = loop.Trainer.compute_gradients

    def breaking(self: loop.Trainer, samples: list[loop.TrainingSample], kinds: LossKinds) -> dict[str, float]:
        report = real(self, samples, kinds)
        return {**report, "loss": float("nan")} if samples[0].number >= 4 else report

    monkeypatch.setattr(loop.Trainer, "compute_gradients", breaking)
    with pytest.raises(InputError, match=r"loss: nan .* at step 2.*last checkpoint is intact"):
        loop.train(recipe, tmp_path)
    last = latest_checkpoint(tmp_path)
    assert last is not None
    assert load_checkpoint(last).step == 2
    assert all(tensor.isfinite().all() for tensor in load_checkpoint(last).model.values() if tensor.is_floating_point())


def test_a_run_becomes_a_model(straight: Path, tmp_path: Path) -> None:
    detector = detector_from_run(straight)
    assert (detector.names, detector.head) == (("car",), "atss")
    assert detector.canvas == (128, 128)
    last = checkpoints(straight)[-1]
    again = detector_from_run(last)
    for name, tensor in load_checkpoint(last).ema.items():
        assert torch.equal(detector.model.state_dict()[name], tensor)
        assert torch.equal(again.model.state_dict()[name], tensor)
    assert save_detector(detector, tmp_path, auxiliary=("atss",), half=True).is_file()
    with pytest.raises(InputError, match="neither a training run"):
        detector_from_run(tmp_path)


def test_a_run_that_scores_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop.train(small_recipe(steps=1, evaluate_every=1, validation=""), tmp_path)
    assert "nothing is evaluated: name images with --set validation=" in capsys.readouterr().err


def test_validation_scores_the_average(tmp_path: Path) -> None:
    loop.train(small_recipe(steps=2, evaluate_every=2, evaluate_images=2), tmp_path)
    scores = [entry for entry in read_metrics(tmp_path) if "AP50" in entry]
    assert len(scores) == 1
    assert 0 <= scores[0]["AP50"] <= 100


def test_two_processes_score_what_one_scores(straight: Path, tmp_path: Path) -> None:
    settings = ["steps=27", "evaluate_every=27", "evaluate_images=3", "evaluate_budget=1.0"]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(_port())]
    scores = []
    for words in ([], launch):
        run = tmp_path / f"run-{len(words)}"
        shutil.copytree(straight, run)
        command = [sys.executable, *words, *_command(run, *settings)]
        subprocess.run(command, env=_environment(), check=True, capture_output=True)
        scores += [entry for entry in read_metrics(run) if "AP50" in entry]
    assert len(scores) == 2
    assert scores[0]["AP50"] == pytest.approx(scores[1]["AP50"], abs=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_one_step_on_the_device_packs_all_of_a_process_on_a_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", str(device == "cpu").lower())
    trainer, samples, _ = loop.set_up(small_recipe(batch=4, precision="fp32" if device == "cpu" else "bf16"))
    assert {parameter.device.type for parameter in trainer.model.parameters()} == {device}
    assert (trainer.images_per_pass, trainer.loaders > 0) == ((1, False) if device == "cpu" else (4, True))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    report = trainer.update(3, [samples[number] for number in range(4)])
    assert math.isfinite(report["loss"])
    assert any(not torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())


def test_training_ends_when_scores_stop_rising_and_keeps_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    monkeypatch.setattr(loop, "score", lambda *_: {"AP": next(scores)})
    recipe = small_recipe(steps=20, evaluate_every=2, evaluate_images=2, patience=2, checkpoint_every=1)
    loop.train(recipe, tmp_path)
    # Two evaluations after the best, at step 4, and the step in which all processes agree.
    assert best_checkpoint(tmp_path) == tmp_path / "step-000004"
    assert read_metrics(tmp_path)[-1]["step"] == 9
    assert "no higher AP in 2 evaluations" in capsys.readouterr().err
    kept = (tmp_path / "metrics.jsonl").read_bytes()
    loop.train(recipe, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == kept


def test_images_of_a_list_are_set_aside(tmp_path: Path) -> None:
    yaml = write_yolo(tmp_path / "yolo", 5, 128, 96)
    dataset = open_annotated(f"yolo:{yaml}:train")
    (tmp_path / "apart.txt").write_text(f"{dataset.images[3]}\n{dataset.images[0]}\n", encoding="utf-8")
    recipe = small_recipe(data=f"yolo:{yaml}:train", held_out_file=str(tmp_path / "apart.txt"), validation="")
    _, _, data = loop.set_up(recipe)
    assert (list(data.held_out), list(data.training)) == ([0, 3], [1, 2, 4])


def test_the_folder_of_another_recipe_is_refused_by_what_differs(straight: Path) -> None:
    kept = (straight / "recipe.json").read_bytes()
    other = small_recipe(steps=26, checkpoint_every=3, learning_rate=0.5, scorer="entropy", budgets=(0.2,))
    with pytest.raises(
        InputError, match=r"other settings \(budgets 1.0,0.7,0.4 there, 0.2 here, scorer .*, learning_rate .*\)"
    ):
        loop.train(other, straight)
    with pytest.raises(InputError, match=r"classes car there, car,van here"):
        loop.train(small_recipe(classes=("car", "van")), straight)
    assert (straight / "recipe.json").read_bytes() == kept


def test_checkpoints_of_nobody_knows_what_are_refused(straight: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(straight, run)
    (run / "recipe.json").unlink()
    with pytest.raises(InputError, match=r"holds checkpoints but no recipe.json"):
        loop.train(small_recipe(steps=27, learning_rate=0.5), run)
    (run / "recipe.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"recipe.json: cannot be read as a recipe"):
        loop.train(small_recipe(steps=27, learning_rate=0.5), run)


def test_two_runs_into_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(tmp_path / ".vgtok-lock", tmp_path), pytest.raises(InputError, match="another run is writing there"):
        loop.train(small_recipe(steps=1), tmp_path)
    assert loop.train(small_recipe(steps=1), tmp_path) == tmp_path / "step-000001"


def test_a_run_may_become_longer_and_be_watched_otherwise(straight: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(straight, run)
    loop.train(small_recipe(steps=27, checkpoint_every=1, evaluate_every=100), run)
    assert load_checkpoint(run / "step-000027").step == 27


def test_a_recipe_of_an_older_release_is_read(straight: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(straight, run)
    document = json.loads((run / "recipe.json").read_text())
    newer = ("tokenizers", "images_per_pass", "auxiliary_steps", "schedule", "decay_steps", "branch")
    (run / "recipe.json").write_text(json.dumps({name: v for name, v in document.items() if name not in newer}))
    loop.train(small_recipe(steps=27, checkpoint_every=1), run)
    assert load_checkpoint(run / "step-000027").step == 27


def test_a_branch_decays_and_leaves_the_run_untouched(straight: Path, tmp_path: Path) -> None:
    run, branch = tmp_path / "run", tmp_path / "branch"
    loop.train(small_recipe(steps=4, checkpoint_every=2, schedule="constant", learning_rate=1e-3), run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    recipe = branch_recipe(run / "step-000002", {"decay_steps": "3", "final_rate": "0.1"})
    assert (recipe.steps, recipe.schedule) == (5, "constant")
    loop.train(recipe, branch)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    entries = read_metrics(branch)
    assert [entry["step"] for entry in entries] == [3, 4, 5]
    rates = [entry["learning_rate"] / 1e-3 for entry in entries]
    assert rates == pytest.approx([0.1 + 0.9 * (1 - math.sqrt(share)) for share in (0, 1 / 3, 2 / 3)])
    # Its first step is still at the full rate, on the samples the run had: it begins where the run was.
    assert entries[0]["loss"] == pytest.approx(read_metrics(run)[2]["loss"], rel=1e-5)
    # The same words again resume the branch, which is at its end.
    assert loop.train(recipe, branch) == branch / "step-000005"


def test_a_branch_of_a_checkpoint_kept_for_good_starts_with_fresh_moments(tmp_path: Path) -> None:
    run = tmp_path / "run"
    loop.train(small_recipe(steps=5, checkpoint_every=1, keep_every=1, schedule="constant"), run)
    assert not (run / "step-000002" / "optimizer.pt").exists()
    loop.train(branch_recipe(run / "step-000002", {"decay_steps": "2"}), tmp_path / "branch")
    steps = {
        int(entry["step"]) for entry in load_checkpoint(tmp_path / "branch/step-000004").optimizer["state"].values()
    }
    assert steps == {2}


@pytest.mark.parametrize(
    ("checkpoint", "settings", "message"),
    [("step-000003", {}, "set the number of steps"), ("missing", {"decay_steps": "2"}, "not a checkpoint of a run")],
)
def test_what_is_no_branch_is_refused(checkpoint: str, settings: dict[str, str], message: str, tmp_path: Path) -> None:
    loop.train(small_recipe(steps=3, checkpoint_every=3), tmp_path)
    with pytest.raises(InputError, match=message):
        branch_recipe(tmp_path / checkpoint, settings)


def test_auxiliary_steps_leave_the_decoder_as_it_is(tmp_path: Path) -> None:
    loop.train(small_recipe(steps=3, checkpoint_every=1, keep_every=1, auxiliary_steps=2, weight_decay=0.5), tmp_path)
    states = [load_checkpoint(tmp_path / f"step-00000{step}").model for step in (1, 2, 3)]
    moved = [
        {name for name in before if not torch.equal(before[name], after[name])} for before, after in pairwise(states)
    ]
    decoder = {name for name in states[0] if ".decoder." in name}
    assert decoder
    assert not decoder & moved[0]
    assert any(name.startswith("atss_head.") for name in moved[0])
    assert any(name.startswith("query_head.transformer.encoder.") for name in moved[0])
    assert decoder & moved[1]
    losses = [set(entry) for entry in read_metrics(tmp_path)]
    assert "queries/giou" not in losses[1]
    assert {"queries/giou", "atss/giou"} <= losses[2]


def test_images_of_a_pass_share_the_average_of_their_losses(tmp_path: Path) -> None:
    recipe = small_recipe(batch=2, steps=1, checkpoint_every=1)
    samples = TrainingSamples(recipe, ("car",), None, ())
    pair = [samples[0], samples[1]]
    trainer = loop.Trainer(
        recipe, Accelerator(cpu=True), model := initial_model(recipe, ("car",)), *[None] * 3, loop.Stop()
    )  # type: ignore[arg-type]
    trainer.optimizer = make_optimizer(model, recipe)
    apart = trainer.compute_gradients(pair, "auxiliary")
    trainer.recipe = replace(recipe, images_per_pass=2)
    together = trainer.compute_gradients(pair, "auxiliary")
    expected = model.loss(
        [one.image for one in pair],
        [one.tokens for one in pair],
        [{"boxes": one.boxes, "labels": one.labels} for one in pair],
        [one.crop for one in pair],
        kinds="auxiliary",
    )
    assert together["loss"] == pytest.approx(
        float(torch.stack([value.detach() for value in expected.values()]).sum()), rel=1e-5
    )
    assert together["loss"] != pytest.approx(apart["loss"], rel=1e-3)


@pytest.mark.parametrize(("number", "processes"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_signal_saves_and_says_how_to_resume(number: signal.Signals, processes: int, tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port", str(_port())]
    command = [
        sys.executable,
        *(launch if processes > 1 else []),
        *_command(tmp_path, "steps=500", "checkpoint_every=400"),
    ]
    process = subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE, text=True)
    while len(read_metrics(tmp_path)) < 2:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 or processes > 1
    done = latest_checkpoint(tmp_path)
    assert done is not None, said
    step = load_checkpoint(done).step
    assert len(read_metrics(tmp_path)) == step < 400
    assert f"stopped at step {step} of 500 and saved; run the same command to resume" in said


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
