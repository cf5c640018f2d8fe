"""`vgtok evaluate`: numbers on standard output, errors in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.conftest import counting
from tests.cli.test_detect import picture
from tests.command_line import Run
from tests.data.folders import write_visdrone
from tests.detect.small_models import small_detector
from vgtok.detect.detector import Detector
from vgtok.detect.saving import save_detector

CARS = "10,10,20,20,1,4,0,0\n50,10,20,20,1,4,0,1\n0,40,30,30,0,0,0,0\n"
HIT = {"image_id": "a.jpg", "category_id": 4, "bbox": [10, 10, 20, 20], "score": 0.9}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': CARS})}"


def results(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(list(rows)))
    return path


def test_json_has_the_promised_fields(vgtok: Run, data: str, tmp_path: Path) -> None:
    code, out, _ = vgtok("evaluate", "--predictions", results(tmp_path, HIT), "--data", data, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["AP"] == pytest.approx(100 * 51 / 101)
    assert set(document) >= {"AP", "AP50", "AP75", "APS", "APM", "APL", "max_detections", "images", "instances"}
    assert (document["max_detections"], document["images"], document["instances"]) == (500, 1, 2)


@pytest.mark.parametrize("protocol", ["visdrone", "visdrone-toolkit", "aitodv2", "coco"])
def test_people_see_the_cap_and_the_counts(vgtok: Run, data: str, tmp_path: Path, protocol: str) -> None:
    arguments = ("--predictions", results(tmp_path, HIT), "--data", data, "--protocol", protocol)
    code, out, _ = vgtok("evaluate", *arguments, "--report", tmp_path / "report")
    assert code == 0
    cap = {"aitodv2": 1500, "coco": 100}.get(protocol, 500)
    assert f"max detections {cap} per class and image, 1 images, 2 scored boxes" in " ".join(out.split())
    assert (tmp_path / "report" / "report.html").is_file()
    report = json.loads((tmp_path / "report" / "evaluation.json").read_text(encoding="utf-8"))
    assert (report["source"], report["predictions"]) == (data, str(tmp_path / "results.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{not json", "not a json file"),
        ("{}", "not a COCO results file"),
        (json.dumps([{**HIT, "category_id": 40}]), "category_id 40 is unknown"),
        (json.dumps([{**HIT, "image_id": "other.jpg"}]), "image_id 'other.jpg' is unknown"),
        (json.dumps([{**HIT, "score": float("nan")}]), "score nan is not a finite number"),
    ],
)
def test_bad_files_are_one_line_and_a_code(vgtok: Run, data: str, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    code, out, err = vgtok("evaluate", "--predictions", path, "--data", data, "--json")
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert str(path) in err
    assert message in err


def test_problems_of_the_data_are_told(vgtok: Run, tmp_path: Path) -> None:
    folder = write_visdrone(tmp_path / "v", {"a": CARS + "nonsense\n"})
    code, out, _ = vgtok("evaluate", "--predictions", results(tmp_path, HIT), "--data", f"visdrone:{folder}")
    assert code == 0
    assert "1 x line that is not eight numbers, skipped: a.txt, line 4" in " ".join(out.split())


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
    _, out, _ = vgtok("evaluate", "--model", model, *data, "--limit", 2, "--tokenizer", "compact", "--json")
    assert json.loads(out)["tokenizer"] == "compact"
    assert document["tokenizer"] == "top-hat+gate"
    assert "tokenizer: 'taste' is not one of" in vgtok("evaluate", "--model", model, *data, "--tokenizer", "taste")[2]
    code, out, _ = vgtok("evaluate", "--model", model, *data, "--budget", 0.5, "--report", tmp_path / "report")
    assert code == 0
    assert "not known to the model" in out
    report = json.loads((tmp_path / "report" / "evaluation.json").read_text(encoding="utf-8"))
    assert (report["source"], report["model"], report["budget"]) == (data[1], str(model), 0.5)
    assert "not known to the model" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "give either --predictions" in vgtok("evaluate", *data)[2]
    assert "goes with --model" in vgtok("evaluate", "--predictions", "p.json", "--limit", 2, *data)[2]


def test_ctrl_c_says_that_nothing_is_kept(vgtok: Run, model: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting(monkeypatch, stop_after=0)
    code, _, err = vgtok("evaluate", "--model", model, "--data", data)
    assert code == 130
    assert "interrupted: nothing is kept" in err
    assert "--limit 20" in err


def yolo_data(folder: Path, count: int = 4) -> str:
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        Image.fromarray(picture(number)).save(folder / "images" / f"{number}.jpg")
        (folder / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.3 0.3\n")
    (folder / "data.yaml").write_text("path: .\nval: images\nnames: [vehicle, tree]\n")
    return f"yolo:{folder / 'data.yaml'}"


def test_several_classes_stand_for_one_of_the_data(vgtok: Run, model: Path, tmp_path: Path) -> None:
    data = yolo_data(tmp_path / "yolo")
    arguments = ("evaluate", "--model", model, "--data", data)
    code, _, err = vgtok(*arguments)
    assert code == 1
    assert "map them, e.g. --map vehicle=car" in " ".join(err.split())
    report = tmp_path / "report"
    code, out, err = vgtok(*arguments, "--map", "vehicle=car+van", "--report", report, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["class_map"] == {"vehicle": ["car", "van"]}
    assert (document["unused_classes"], document["missing_classes"]) == (["bus"], ["tree"])
    assert document["detections"] > 0
    pages = [(report / name).read_text(encoding="utf-8") for name in ("report.html", "report.md", "evaluation.json")]
    for wanted in (str(model), "query", data):
        assert all(wanted.replace("_", "") in page.replace("\\", "").replace("_", "") for page in pages)
    assert all("vehicle = car + van" in page for page in pages[:2])
    assert json.loads(pages[2])["budget"] == document["budget"]
    code, out, _ = vgtok(*arguments, "--map", "vehicle=car", "--map", "vehicle=van+bus")
    words = " ".join(out.split())
    assert code == 0
    assert "classes: vehicle = car + van + bus" in words
    assert f"data: {data}" in out
    assert max(map(len, out.splitlines()[:-4])) <= 80


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vehicle", "'vehicle' is not DATA=MODEL"),
        ("vehicle=car+", "'vehicle=car+' is not DATA=MODEL"),
        ("wagon=car", "'wagon' is not a class of the data, which has vehicle, tree"),
        ("vehicle=wagon", "'wagon' is not a class of the model, which has car, van, bus"),
    ],
)
def test_a_wrong_mapping_is_told(vgtok: Run, model: Path, tmp_path: Path, text: str, message: str) -> None:
    data = yolo_data(tmp_path / "yolo", 1)
    code, _, err = vgtok("evaluate", "--model", model, "--data", data, "--map", text)
    assert code == 1
    assert f"--map: {message}" in " ".join(err.split())


def test_a_run_is_compared_with_another(vgtok: Run, model: Path, tmp_path: Path) -> None:
    data = yolo_data(tmp_path / "yolo")
    arguments = ("evaluate", "--model", model, "--data", data, "--map", "vehicle=car+van+bus")
    code, out, err = vgtok(*arguments, "--budget", 0.4, "--report", tmp_path / "first", "--json")
    assert code == 0, err
    (tmp_path / "first.json").write_text(out)
    for other in (tmp_path / "first", tmp_path / "first.json", tmp_path / "first" / "detections.json"):
        code, out, err = vgtok(*arguments, "--budget", 0.4, "--compare", other, "--json")
        assert code == 0, err
        assert [(row["difference"], row["significant"]) for row in json.loads(out)["differences"]][:3] == [
            (0, False)
        ] * 3
    code, out, err = vgtok(*arguments, "--budget", 1, "--compare", tmp_path / "first", "--report", tmp_path / "second")
    assert code == 0, err
    assert "not significant" in out
    assert "95% interval" in (tmp_path / "second" / "report.html").read_text(encoding="utf-8")
    code, out, _ = vgtok(*arguments, "--json")
    (tmp_path / "bare.json").write_text(out)
    code, _, err = vgtok(*arguments, "--compare", tmp_path / "bare.json")
    assert code == 1
    assert "run that evaluation with --report FOLDER" in " ".join(err.split())
    code, _, err = vgtok(*arguments, "--limit", 2, "--compare", tmp_path / "first.json")
    assert code == 1
    assert "of 4 images, but here are 2" in " ".join(err.split())
