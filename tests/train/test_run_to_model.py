"""A finished run as a model folder: weights, card, losses, and no word of where the data lay."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vgtok.cli.main import app
from vgtok.detect.saving import load_detector, save_detector
from vgtok.errors import InputError
from vgtok.train import loop
from vgtok.train.recipe import branch_recipe
from vgtok.train.run_folder import checkpoints
from vgtok.train.run_to_model import detector_from_run, inherited_license, training_history

from .small import small_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    loop.train(small_recipe(steps=3, checkpoint_every=1, keep_every=1), folder)
    return folder


def test_the_folder_holds_all_a_user_needs(run: Path, tmp_path: Path) -> None:
    evaluation = tmp_path / "val.json"
    classes = [
        {"name": "car", "boxes": 9, "ap": 3.0, "ap50": 12.54},
        {"name": "van", "boxes": 0, "ap": None, "ap50": None},
    ]
    document = {"protocol": "visdrone", "images": 548, "budget": 0.4, "AP50": 12.5, "extra": 1, "classes": classes}
    evaluation.write_text(json.dumps(document))
    words = ["convert", "run", str(run), str(tmp_path / "model"), "--half", "--table", "visdrone", "--json"]
    words += ["--tokenizer", "compact"]
    result = CliRunner().invoke(app, [*words, "--license", "for academic use", "--evaluation", str(evaluation)])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["classes"] == ["car"]
    detector = load_detector(tmp_path / "model")
    assert detector.table is not None
    assert detector.license == "for academic use"
    assert detector.tokenizer_name == "compact"
    assert detector_from_run(run).tokenizer_name == "top-hat+gate"
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| visdrone | 548 | 0.4 | 12.5 |" in card
    assert "| class | boxes | AP50 at 40% |" in card
    assert "| car | 9 | 12.5 |" in card
    assert "| van | 0 | - |" in card
    assert "| samples | 6, whole images, 3 steps |" in card
    assert str(run) not in card


@pytest.fixture(scope="module")
def finetuned(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that starts from a model with a license, by a recipe that also names encoder weights; and that model."""
    folder = tmp_path_factory.mktemp("finetuned")
    save_detector(detector_from_run(run, license="for academic use"), folder / "academic")
    recipe = small_recipe(steps=1, init_from=str(folder / "academic"), encoder_weights="imagenet.safetensors")
    loop.train(recipe, folder / "run")
    return folder / "run", folder / "academic"


def test_a_finetuned_model_names_its_start_and_keeps_its_license(finetuned: tuple[Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", "run", str(finetuned[0]), str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    assert load_detector(tmp_path / "model").license == "Started from academic: for academic use"
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "| initialized from | academic |" in card
    assert "imagenet" not in card
    assert "license: other" in card
    assert "Started from academic: for academic use" in card
    assert str(finetuned[1].parent) not in card


def test_a_license_that_is_given_stands(finetuned: tuple[Path, Path]) -> None:
    assert detector_from_run(finetuned[0], license="settled with the authors").license == "settled with the authors"


def test_a_start_that_is_gone_leaves_its_terms(finetuned: tuple[Path, Path], tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(finetuned[0], copied)
    recipe = json.loads((copied / "recipe.json").read_text(encoding="utf-8"))
    (copied / "recipe.json").write_text(json.dumps(recipe | {"init_from": str(tmp_path / "gone")}), encoding="utf-8")
    assert detector_from_run(copied).license == (
        "Started from gone, whose license could not be read and applies to this model too"
    )


def test_a_start_in_the_package_is_known_by_name(run: Path, tmp_path: Path) -> None:
    assert inherited_license("vgtok-tiny").startswith("Started from vgtok-tiny: Trained on VisDrone")
    assert inherited_license("") == ""
    assert detector_from_run(run).license == ""


def test_an_earlier_checkpoint_is_a_model_too(run: Path) -> None:
    first, last = detector_from_run(run / "step-000001"), detector_from_run(run)
    name = "query_head.cls_branches.0.weight"
    assert not first.model.state_dict()[name].equal(last.model.state_dict()[name])


def test_the_losses_are_those_of_the_run(run: Path) -> None:
    lines = training_history(run).splitlines()
    assert lines[0].startswith("step,samples,seconds,")
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a training run"):
        detector_from_run(tmp_path)
    for data, message in (
        (None, "cannot be read"),
        (b"{", "not a json file"),
        (b"[]", "not what vgtok evaluate --json prints"),
        (b"{}", "not what vgtok evaluate --json prints"),
    ):
        evaluation = tmp_path / "evaluation.json"
        if data is not None:
            evaluation.write_bytes(data)
        words = ["convert", "run", str(tmp_path), str(tmp_path / "m"), "--evaluation", str(evaluation)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert f"evaluation.json: {message}" in str(result.exception)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("recipe.json", b"[]"),
        ("recipe.json", b"[" * 100_000),
        ("recipe.json", b"{}"),
        ("model.json", b"[]"),
        ("model.json", b"\xff"),
        ("model.json", b"[" * 100_000),
        ("step-000003/ema.safetensors", b"cut short"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(run: Path, tmp_path: Path, name: str, data: bytes) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(data)
    with pytest.raises(InputError, match="neither a training run") as refused:
        detector_from_run(tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_a_damaged_report_is_left_out_of_the_history(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(lines[0] + b"\xff\xfe\n" + b"".join(lines[2:]))
    assert [line.split(",")[0] for line in training_history(tmp_path / "run").splitlines()[1:]] == ["1", "3"]


def test_a_copy_of_a_checkpoint_by_another_name_is_none(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    for name in ("step-000002-old", "best"):
        shutil.copytree(run / "step-000002", tmp_path / "run" / name)
        with pytest.raises(InputError, match="neither a training run"):
            detector_from_run(tmp_path / "run" / name)
        with pytest.raises(InputError, match="not a checkpoint of a run"):
            branch_recipe(tmp_path / "run" / name, {"decay_steps": "3"})
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == [folder.name for folder in checkpoints(run)]


def test_the_losses_of_a_branch_begin_with_the_run_it_left(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    branch = branch_recipe(checkpoints(copied)[1], {"decay_steps": "2"})
    loop.train(branch, tmp_path / "branch")
    steps = [line.split(",")[0] for line in training_history(tmp_path / "branch").splitlines()]
    assert steps == ["step", "1", "2", "3", "4"]
    shutil.rmtree(copied)
    assert [line.split(",")[0] for line in training_history(tmp_path / "branch").splitlines()] == ["step", "3", "4"]
