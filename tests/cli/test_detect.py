"""`vgtok detect`, `models`, `convert co-detr` and `evaluate --model` as a user meets them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cli.conftest import counting
from tests.command_line import Run
from tests.data.folders import write_visdrone
from tests.detect.small_models import SMALL, small_detector
from vgtok.detect import checkpoint
from vgtok.detect.checkpoint import write_co_detr
from vgtok.detect.detector import Detector
from vgtok.detect.saving import load_detector, save_detector
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
    # What lies elsewhere stays: results of several calls are gathered in one folder.
    Image.fromarray(picture(7)).save(tmp_path / "other.png")
    code, printed, _ = vgtok("detect", tmp_path / "other.png", *arguments[2:])
    assert len(json.loads(printed)["frames"]) == 3


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
        if (images == picture(1)).all():
            raise RuntimeError("out of memory")
        return original(self, images, **settings)

    monkeypatch.setattr(Detector, "__call__", call)
    code, out, err = vgtok("detect", frames, "--model", model, "--out", tmp_path / "out", "--json")
    assert code == 1
    assert "1.png: out of memory" in err
    assert [row["input"] for row in json.loads(out)["frames"]] == ["0.png", "2.png"]


def test_models_are_counted(vgtok: Run) -> None:
    code, out, _ = vgtok("models", "--json")
    assert code == 0
    large = next(row for row in json.loads(out)["models"] if row["name"] == "co-detr-eva02-large")
    assert large["parameters"] / 1e6 == pytest.approx(364.99, abs=0.005)
    assert large["parameters_with_fusion"] / 1e6 == pytest.approx(376.27, abs=0.005)
    assert large["dense_gflops"] == pytest.approx(12955.5, rel=1e-3)
    assert (large["classes"], large["queries"]) == (10, 1500)
    parts = {
        "encoder": 304.24,
        "neck": 24.00,
        "query_head": 19.72,
        "rpn_head": 0.60,
        "roi_head": 15.22,
        "atss_head": 1.22,
    }
    for part, millions in parts.items():
        assert large["parts"][part] / 1e6 == pytest.approx(millions, abs=0.006), part
    assert "co-detr-vit-tiny" in vgtok("models", "co-detr-vit-tiny")[1]
    assert "is not one of" in vgtok("models", "yolo")[2]


def test_convert_there_and_back(vgtok: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.convert_co_detr, "__defaults__", (None, SMALL))
    original = small_detector()
    write_co_detr(original, tmp_path / "released.pth")
    code, out, err = vgtok("convert", "co-detr", tmp_path / "released.pth", tmp_path / "model")
    assert code == 0, err
    assert "tensors matched" in out
    assert "reads all tokens by default" in out
    assert "unresolved" in out
    code, out, _ = vgtok("convert", "co-detr", tmp_path / "model", tmp_path / "back.safetensors", "--json")
    assert (code, json.loads(out)["left_out"]) == (0, [])
    again = checkpoint.load_co_detr(tmp_path / "back.safetensors").model.state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in original.model.state_dict().items())

    names = tmp_path / "names.txt"
    names.write_text("car\nbus\n")
    options = ("--names", names, "--inference", "--half", "--json")
    code, out, _ = vgtok("convert", "co-detr", tmp_path / "released.pth", tmp_path / "two", *options)
    document = json.loads(out)
    assert (code, document["classes"]) == (0, 2)
    # Of each classifier a weight and a bias, and the table of label queries: three query branches, ATSS, RoI.
    assert len(document["reinitialised"]) == 2 * 3 + 1 + 2 + 2
    assert load_detector(tmp_path / "two").model.config.auxiliary == ()


def test_convert_refuses_in_one_line(vgtok: Run, tmp_path: Path) -> None:
    torch.save({"state_dict": {"backbone.pos_embed": torch.zeros(3)}}, tmp_path / "wrong.pth")
    for arguments, message in (
        ((tmp_path / "wrong.pth", tmp_path / "out"), "not a Co-DETR checkpoint of this kind"),
        ((tmp_path / "nowhere.pth", tmp_path / "out"), "no such file"),
        ((tmp_path, tmp_path / "out.pth"), "not a saved model"),
        ((tmp_path, tmp_path / "out.pth", "--half"), "go with a checkpoint file"),
        ((tmp_path / "wrong.pth", tmp_path / "out", "--names", "a,a"), "each class once"),
    ):
        code, out, err = vgtok("convert", "co-detr", *arguments)
        assert (code, out) == (1, "")
        assert len(err.strip().splitlines()) == 1
        assert message in err
    assert not (tmp_path / "out").exists()


def test_evaluate_runs_a_model(vgtok: Run, model: Path, tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "visdrone", dict.fromkeys("abcd", "10,10,20,20,1,4,0,0\n"))
    for number, name in enumerate("abc"):
        Image.fromarray(picture(number)).save(folder / "images" / f"{name}.jpg")
    data = ("--data", f"visdrone:{folder}")
    code, out, err = vgtok("evaluate", "--model", model, *data, "--budget", 0.5, "--limit", 2, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["images"], document["instances"], document["budget"]) == (2, 2, 0.5)
    assert document["retained"] == pytest.approx(0.5, abs=0.05)
    assert len(document["missing_classes"]) == 7
    save_detector(Detector(small_detector().model, canvas=(192, 128), budget=1.0), tmp_path / "released")
    _, out, _ = vgtok("evaluate", "--model", tmp_path / "released", *data, "--limit", 2, "--json")
    assert (json.loads(out)["budget"], json.loads(out)["retained"]) == (1.0, 1.0)
    code, out, _ = vgtok("evaluate", "--model", model, *data, "--budget", 0.5, "--report", tmp_path / "report")
    assert code == 0
    assert "not known to the model" in out
    report = json.loads((tmp_path / "report" / "evaluation.json").read_text(encoding="utf-8"))
    assert (report["source"], report["model"], report["budget"]) == (data[1], str(model), 0.5)
    assert "not known to the model" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "give either --predictions" in vgtok("evaluate", *data)[2]
    assert "goes with --model" in vgtok("evaluate", "--predictions", "p.json", "--limit", 2, *data)[2]
