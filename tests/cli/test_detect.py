"""`vgtok detect` on images: outputs, resuming, and files that fail."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import counting
from tests.command_line import Run
from tests.data.folders import write_visdrone
from tests.detect.small_models import small_detector
from vgtok.detect.detector import Detector
from vgtok.detect.saving import save_detector
from vgtok.files import locked


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(picture(number)).save(folder / f"{number}.png")
    return folder


def picture(seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (96, 128, 3), dtype=np.uint8)


def test_everything_is_written(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outputs = [word for kind in ("picture", "tokens", "coco", "csv") for word in ("--write", kind)]
    code, printed, err = vgtok(
        "detect", frames, "--model", model, "--out", out, *outputs, "--score-threshold", 0.001, "--json"
    )
    assert code == 0, err
    document = json.loads(printed)
    assert [row["input"] for row in document["frames"]] == ["0.png", "1.png", "2.png"]
    assert all(Path(file).is_file() for row in document["frames"] for file in row["written"])
    with Image.open(out / "0.detections.jpg") as drawn:
        assert drawn.size == (128, 96)
    rows = json.loads((out / "detections.json").read_text())
    assert len(rows) == sum(row["detections"] for row in document["frames"]) > 0
    assert {row["image_id"] for row in rows} == {"0.png", "1.png", "2.png"}
    table = list(csv.DictReader((out / "detections.csv").read_text().splitlines()))
    assert len(table) == len(rows)
    assert float(table[0]["score"]) == pytest.approx(rows[0]["score"], abs=1e-3)
    assert document["frames"][0]["retained"] == pytest.approx(0.4, abs=0.05)


def test_the_models_own_budget_is_the_default(
    vgtok: Run, frames: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_detector(Detector(small_detector().model, canvas=(192, 128), budget=1.0), tmp_path / "released")
    words = ("detect", frames, "--model", tmp_path / "released", "--json", "--out")
    _, printed, _ = vgtok(*words, tmp_path / "all")
    assert [row["retained"] for row in json.loads(printed)["frames"]] == [1.0, 1.0, 1.0]
    assert not caplog.records
    _, printed, _ = vgtok(*words, tmp_path / "fewer", "--budget", 0.5)
    assert all(row["retained"] < 0.6 for row in json.loads(printed)["frames"])
    # One notice for all three frames.
    assert ["never trained on coarse tokens" in message for message in caplog.messages] == [True]


def test_a_stopped_run_goes_on(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("detect", frames, "--model", model, "--out", tmp_path / "out")
    with monkeypatch.context() as patched:
        counting(patched, stop_after=2)
        assert vgtok(*arguments)[0] == 130
    # As if the kill had come in the middle of a line.
    with (tmp_path / "out" / "journal.jsonl").open("a") as journal:
        journal.write('{"item": "2.png", "det')
    calls = counting(monkeypatch)
    code, out, _ = vgtok(*arguments, "--json")
    assert (code, len(calls)) == (0, 1)
    document = json.loads(out)
    assert document["resumed"] == 2
    assert len(document["frames"]) == 3
    whole = json.loads((tmp_path / "out" / "detections.json").read_text())
    assert {row["image_id"] for row in whole} <= {"0.png", "1.png", "2.png"}
    (tmp_path / "out" / "1.detections.jpg").unlink()
    Image.fromarray(picture(9)).save(frames / "2.png")
    assert "before this run" in vgtok(*arguments)[1]
    assert len(calls) == 3, "a deleted result and a changed picture are done again, the rest is not"
    code, _, err = vgtok(*arguments, "--budget", 0.7)
    assert code == 1
    assert "differs in budget" in err
    save_detector(small_detector(seed=5), model)
    assert "differs in weights" in vgtok(*arguments)[2]
    assert "budget: 2.0 is outside" in vgtok(*arguments, "--budget", 2)[2]


def test_a_bad_file_stops_nothing(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    (frames / "1.png").write_text("not a picture")
    (frames / "3.mp4").write_text("not a video")
    arguments = (frames, tmp_path / "missing.jpg", tmp_path / "none*.jpg")
    code, out, err = vgtok("detect", *arguments, "--model", model, "--out", tmp_path / "out", "--json")
    document = json.loads(out)
    assert code == 1
    assert [row["input"] for row in document["frames"]] == ["0.png", "2.png"]
    assert len(document["failed"]) == 4
    for name, message in (
        ("1.png", "not an image"),
        ("3.mp4", "not a video"),
        ("missing.jpg", "no such file"),
        ("none*.jpg", "matches no file"),
    ):
        assert any(name in row["error"] and message in row["error"] for row in document["failed"])
    assert "Traceback" not in err


def test_deleted_pictures_and_damaged_lines_leave_the_results(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    arguments = ("detect", frames, "--model", model, "--out", out, "--score-threshold", 0.001, "--json")
    assert vgtok(*arguments)[0] == 0
    journal = out / "journal.jsonl"
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([*lines[:2], lines[2].replace(b'"stamp"', b'"st\xffmp"'), lines[3]]) + b"\n")
    (frames / "0.png").unlink()
    calls = counting(monkeypatch)
    code, printed, err = vgtok(*arguments)
    assert (code, len(calls)) == (0, 1), err
    assert {row["input"] for row in json.loads(printed)["frames"]} == {"1.png", "2.png"}
    assert {row["image_id"] for row in json.loads((out / "detections.json").read_text())} == {"1.png", "2.png"}
    # What lies elsewhere stays: with --out, the files gather the results of several calls. Each prints its own.
    Image.fromarray(picture(7)).save(tmp_path / "other.png")
    code, printed, _ = vgtok("detect", tmp_path / "other.png", *arguments[2:])
    assert [row["input"] for row in json.loads(printed)["frames"]] == ["other.png"]
    gathered = {row["image_id"] for row in json.loads((out / "detections.json").read_text())}
    assert gathered == {"1.png", "2.png", "other.png"}


def test_other_settings_and_other_inputs_have_folders_of_their_own(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("detect", frames / "0.png", "--model", model, "--score-threshold", 0.001, "--json")
    first = json.loads(vgtok(*words)[1])
    assert (first["out"], first["resumed"]) == (str(Path("vgtok-runs/detect")), 0)
    before = (tmp_path / "vgtok-runs" / "detect" / "detections.json").read_bytes()
    for number, more in ((2, ("--budget", 0.7)), (3, ("--write", "csv")), (4, (frames / "1.png",))):
        document = json.loads(vgtok(*words, *more)[1])
        assert document["out"] == str(Path(f"vgtok-runs/detect-{number}"))
        assert document["resumed"] == 0
    assert [row["input"] for row in document["frames"]] == ["0.png", "1.png"]
    # The same command, named from its folder, finds its own.
    monkeypatch.chdir(frames)
    (frames / "vgtok-runs").symlink_to(tmp_path / "vgtok-runs")
    again = json.loads(vgtok("detect", "0.png", *words[2:])[1])
    assert (again["out"], again["resumed"], len(again["frames"])) == (first["out"], 1, 1)
    assert (tmp_path / "vgtok-runs" / "detect" / "detections.json").read_bytes() == before


def test_an_input_that_is_not_there_prints_no_results(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--model", model, "--json")
    assert vgtok("detect", frames / "0.png", *words)[0] == 0
    (frames / "0.png").unlink()
    for missing, message in ((frames / "0.png", "no such file"), ("https://example.com/a.jpg", "nothing is fetched")):
        code, printed, err = vgtok("detect", missing, *words)
        assert (code, json.loads(printed)["frames"]) == (1, [])
        assert f"{missing}: " in err
        assert message in err
    assert [path.name for path in (tmp_path / "vgtok-runs").iterdir()] == ["detect"]


def test_ctrl_c_says_what_is_kept(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        counting(patched, stop_after=2)
        code, _, err = vgtok("detect", frames, "--model", model)
    assert code == 130
    kept = Path("vgtok-runs/detect")
    assert f"interrupted: 2 of 3 frames are finished and kept in {kept}; run the same command" in err
    document = json.loads(vgtok("detect", frames, "--model", model, "--json")[1])
    assert (document["out"], document["resumed"], len(document["frames"])) == (str(kept), 2, 3)


def test_two_runs_into_one_folder_are_refused(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "out" / ".vgtok-lock", tmp_path / "out"):
        code, _, err = vgtok("detect", frames, "--model", model, "--out", tmp_path / "out")
    assert code == 1
    assert "another run is writing there" in err
    assert vgtok("detect", frames, "--model", model, "--out", tmp_path / "out")[0] == 0


def test_cells_that_a_spreadsheet_would_run_are_text(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    (frames / "0.png").rename(frames / "=1+1.png")
    options = ("--out", tmp_path / "out", "--write", "csv", "--score-threshold", 0.001)
    assert vgtok("detect", frames / "=1+1.png", "--model", model, *options)[0] == 0
    rows = list(csv.reader((tmp_path / "out" / "detections.csv").read_text().splitlines()))
    assert {row[0] for row in rows[1:]} == {"'=1+1.png"}


def test_what_no_frame_could_do_is_refused_once(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    save_detector(small_detector(), model, auxiliary=())
    code, _, err = vgtok("detect", frames, "--model", model, "--out", tmp_path / "out", "--head", "atss")
    assert code == 1
    assert err.count("without its ATSS head") == 1
    save_detector(small_detector(), model)
    code, out, _ = vgtok("detect", frames, "--model", model, "--out", tmp_path / "out", "--head", "atss", "--json")
    assert code == 0
    assert len(json.loads(out)["frames"]) == 3


def test_a_frame_the_model_cannot_take_stops_nothing(
    vgtok: Run, model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Detector.__call__

    def call(self: Detector, images: Any, **settings: Any) -> Any:
        if (images.pixels == picture(1)).all():
            raise RuntimeError("out of memory")
        return original(self, images, **settings)

    monkeypatch.setattr(Detector, "__call__", call)
    code, out, err = vgtok("detect", frames, "--model", model, "--out", tmp_path / "out", "--json")
    assert code == 1
    assert "1.png: out of memory" in err
    assert [row["input"] for row in json.loads(out)["frames"]] == ["0.png", "2.png"]


def test_annotated_boxes_are_drawn(vgtok: Run, model: Path, frames: Path, tmp_path: Path) -> None:
    line = "30,20,60,50,1,4,0,0\n"
    data = write_visdrone(tmp_path / "visdrone", {"0": line})
    for image in (data / "images").iterdir():
        image.unlink()
    (frames / "0.png").rename(data / "images" / "0.jpg")
    options = ("--model", model, "--score-threshold", 0.9, "--write", "picture", "--write", "compare")
    truth = ("--truth", f"visdrone:{data}")
    code, _, err = vgtok("detect", data / "images" / "0.jpg", *options, *truth, "--out", tmp_path / "out")
    assert code == 0, err
    assert vgtok("detect", data / "images" / "0.jpg", *options, "--out", tmp_path / "plain")[0] == 0
    with Image.open(tmp_path / "out" / "0.detections.jpg") as drawn:
        with_truth = np.asarray(drawn).astype(int)
    with Image.open(tmp_path / "plain" / "0.detections.jpg") as drawn:
        without = np.asarray(drawn).astype(int)
    assert with_truth[20, 30:90].mean() > without[20, 30:90].mean() + 30
    with Image.open(tmp_path / "out" / "0.compare.jpg") as drawn:
        assert drawn.width >= 2 * 128
    code, _, err = vgtok("detect", frames / "1.png", *options, *truth, "--out", tmp_path / "other")
    assert code == 1
    assert "1.png: not one of the 1 images of --truth" in " ".join(err.split())
