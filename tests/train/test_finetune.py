"""One call from a data set to a model: classes kept or new, a split of its own, resumable, and a line that works."""

import json
import os
import shlex
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.detect.small_models import small_detector
from tests.train.rendered_yolo import write_yolo
from vgtok.cli.main import app
from vgtok.data import convert_dataset, open_annotated
from vgtok.detect import Detector, load_detector
from vgtok.detect.classes import match_classes, with_classes
from vgtok.errors import InputError, RunInterruptedError
from vgtok.names import VISDRONE
from vgtok.train.finetune import APART_FILE, PLAN_FILE, finetune
from vgtok.train.run_folder import read_metrics


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small detector that knows cars, among others."""
    folder = tmp_path_factory.mktemp("start") / "small"
    detector = small_detector()
    detector.canvas = (128, 128)
    detector.license = "for tests only"
    detector.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def yolo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_yolo(tmp_path_factory.mktemp("yolo"), 10, 128, 96)


def class_rows(detector: Detector) -> torch.Tensor:
    return detector.model.state_dict()["query_head.cls_branches.0.weight"]


def test_classes_match_by_name_and_by_mapping() -> None:
    known = ("car", "van", "bus")
    assert match_classes(("Car", "minibus", "ship"), known, {"minibus": "van"}) == {"Car": "car", "minibus": "van"}
    with pytest.raises(InputError, match="map: lorry is not a class of the model"):
        match_classes(("ship",), known, {"ship": "lorry"})
    with pytest.raises(InputError, match="map: truck is not a class of the data"):
        match_classes(("ship",), known, {"truck": "van"})


def test_known_classes_keep_their_weights_and_new_ones_do_not() -> None:
    old = small_detector()
    names = ("ship", old.names[1], old.names[0])
    model = with_classes(old.model, names, {name: name for name in names[1:]})
    assert model.config.names == names
    before, after = old.model.state_dict(), model.state_dict()
    for name, tensor in after.items():
        if tensor.shape == before[name].shape:
            continue
        if name.startswith(("query_head.cls_branches", "atss_head.atss_cls")):
            assert torch.equal(tensor[1], before[name][1])
            assert torch.equal(tensor[2], before[name][0])
            if tensor.ndim > 1:
                assert not torch.equal(tensor[0], before[name][0])
    unchanged = [name for name in before if name.startswith("encoder.")]
    assert all(torch.equal(before[name], after[name]) for name in unchanged)


def test_the_background_of_the_region_head_stays_last() -> None:
    old = small_detector()
    assert old.model.roi_head is not None
    model = with_classes(old.model, ("ship",), {})
    assert model.roi_head is not None
    assert torch.equal(model.roi_head.fc_cls.weight[-1], old.model.roi_head.fc_cls.weight[-1])


def test_one_command_from_yolo_to_a_model(start: Path, yolo: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    words = ["finetune", f"yolo:{yolo}", "--model", str(start), "--epochs", "1", "--out", str(out), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout.splitlines()[-1])
    assert document["kept"] == {"car": "car"}
    assert [entry["name"] for entry in document["classes"]] == ["car", "ship"]
    # Every class that two sequences show is in the part kept apart, which no sequence shares with training.
    assert all(entry["boxes"] > 0 for entry in document["classes"])
    apart = (out / APART_FILE).read_text(encoding="utf-8").splitlines()
    assert 2 <= len(apart) < 10
    detector = load_detector(out / "model")
    assert detector.names == ("car", "ship")
    assert "for tests only" in detector.license
    assert (out / "model" / "README.md").read_text(encoding="utf-8").count("small") >= 1
    assert (out / "report" / "report.html").is_file()
    # The line it ends with runs as it is, on an image kept apart.
    use = shlex.split(document["use"])
    assert use[:2] == ["vgtok", "detect"]
    assert use[2] in apart
    assert CliRunner().invoke(app, [*use[1:], "--out", str(tmp_path / "found")]).exit_code == 0
    # The same call again finds everything done; another is refused and names what differs.
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0
    other = CliRunner().invoke(app, [*words[:-1], "--budget", "0.5"])
    assert isinstance(other.exception, InputError)
    assert "holds a finetune with another budget" in str(other.exception)
    assert (out / PLAN_FILE).is_file()


def test_a_run_by_time_is_stopped_by_ctrl_c_and_goes_on(
    start: Path, yolo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_LEAST_STEPS": 8, "_EVALUATIONS": 1}.items():
        monkeypatch.setattr(sys.modules["vgtok.train.finetune"], name, value)
    out, words = tmp_path / "tuned", {"model": str(start), "minutes": 0.01}

    def interrupt() -> None:
        deadline = time.monotonic() + 120
        while not read_metrics(out / "run") and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(interrupt)
        with pytest.raises(RunInterruptedError, match=r"stopped at step \d+ of \d+ and saved; run the same command"):
            finetune(f"yolo:{yolo}", out=out, **words)  # type: ignore[arg-type]
    stopped = [entry for entry in read_metrics(out / "run") if "loss" in entry]
    result = finetune(f"yolo:{yolo}", out=out, **words)  # type: ignore[arg-type]
    finished = [entry for entry in read_metrics(out / "run") if "loss" in entry]
    # Not a step twice, none of the first part lost, and as many as the plan has by now.
    assert [entry["step"] for entry in finished] == list(range(1, len(finished) + 1))
    assert finished[: len(stopped)] == stopped
    recipe = json.loads((out / PLAN_FILE).read_text(encoding="utf-8"))["recipe"]
    assert len(finished) <= recipe["steps"]
    assert json.loads((out / "run" / "recipe.json").read_text(encoding="utf-8")) == recipe
    assert result.load().names == ("car", "ship")


@pytest.mark.parametrize("target", ["coco", "visdrone"])
def test_the_same_from_other_formats(start: Path, yolo: Path, tmp_path: Path, target: str) -> None:
    place = tmp_path / ("data.json" if target == "coco" else "data")
    convert_dataset(open_annotated(f"yolo:{yolo}:train"), target, place)
    spec = f"coco:{place}:{yolo.parent / 'images'}" if target == "coco" else f"visdrone:{place}"
    result = finetune(spec, str(start), out=tmp_path / "tuned", epochs=1)
    assert result.load().names == (("car", "ship") if target == "coco" else VISDRONE)
    assert result.evaluation.images > 0


def test_a_class_may_start_from_another(start: Path, yolo: Path, tmp_path: Path) -> None:
    old = load_detector(start)
    result = finetune(f"yolo:{yolo}", str(start), out=tmp_path / "tuned", epochs=1, mapping={"ship": old.names[-1]})
    assert result.kept["ship"] == old.names[-1]
    begun = load_detector(tmp_path / "tuned" / start.name)
    assert torch.equal(class_rows(begun)[1], class_rows(old)[-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minutes": 0}, "minutes: 0 is not above 0"),
        ({"epochs": 0}, "epochs: 0 is not 1 or more"),
        ({"mapping": {"ship": "zeppelin"}}, "map: zeppelin is not a class of the model"),
    ],
)
def test_bad_arguments_are_one_sentence(
    start: Path, yolo: Path, tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        finetune(f"yolo:{yolo}", str(start), out=tmp_path, **arguments)  # type: ignore[arg-type]
