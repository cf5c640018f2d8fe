"""`vgtok slice` as users meet it, with a YOLO file that finds the same object in every image."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.command_line import Run, runner
from tests.slicing.yolo_files import columns, write_yolo

ROWS = np.array([(8, 20, 24, 30, 0.9, 2), (40, 30, 60, 50, 0.2, 0)], dtype=np.float32)
SMALL = ("--tile", 96, "--overlap", 16, "--coarse", 64)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture
def yolo(tmp_path: Path) -> Path:
    return write_yolo(tmp_path / "yolo.onnx", columns(ROWS, 80))


def _photos(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        Image.effect_noise((320, 160), 40 + number).convert("RGB").save(folder / f"photo-{number}.png")
    return folder


def test_a_folder_becomes_pictures_and_coco_and_resumes(tmp_path: Path, command: Run, yolo: Path) -> None:
    photos, out = _photos(tmp_path / "photos", 2), tmp_path / "out"
    (photos / "notes.txt").write_text("no image")
    arguments = ("slice", photos, "--onnx", yolo, "--budget", 0.5, *SMALL, "--out", out, "--json")
    code, printed, err = command(*arguments)
    assert (code, "passed over: 1 .txt" in err) == (0, True)
    document = json.loads(printed)
    assert document["passed_over"] == {".txt": 1}
    first = document["frames"][0]
    assert (first["read"], first["tiles"], len(first["looks"])) == (4, 8, 8)
    assert (out / "photo-0.tiles.jpg").is_file()
    rows = json.loads((out / "detections.json").read_text())
    # COCO's own id of its third class; the weak one is left out.
    assert {row["category_id"] for row in rows} == {3}
    assert {row["image_id"] for row in rows} == {"photo-0.png", "photo-1.png"}
    assert json.loads(command(*arguments)[1])["resumed"] == 2
    assert "2 images were finished before" in command(*arguments[:-1])[1]


def test_other_budgets_and_outputs(tmp_path: Path, command: Run, yolo: Path) -> None:
    photo = _photos(tmp_path / "photos", 1) / "photo-0.png"
    arguments = ("slice", photo, "--onnx", yolo, *SMALL, "--out", tmp_path / "a", "--write", "picture")
    code, printed, _ = command(*arguments, "--megapixels", 0.02)
    assert code == 0
    assert "2 of 8" in printed
    assert (tmp_path / "a" / "photo-0.detections.jpg").is_file()
    assert not (tmp_path / "a" / "detections.json").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--budget", 2), "not a share of the tiles"),
        (("--budget", 0.5, "--milliseconds", 3), "give one of"),
        (("--coarse", 0, "--guide", "scores"), "needs a coarse pass"),
        (("--tile", 4), "tile"),
    ],
)
def test_wrong_options_are_one_sentence(
    tmp_path: Path, command: Run, yolo: Path, wrong: tuple[object, ...], said: str
) -> None:
    photo = _photos(tmp_path / "photos", 1) / "photo-0.png"
    code, _, err = command("slice", photo, "--onnx", yolo, "--out", tmp_path / "a", *wrong)
    assert code == 1
    assert said in err
    assert err.count("\n") == 1


def test_a_damaged_image_is_one_sentence_and_the_others_are_done(tmp_path: Path, command: Run, yolo: Path) -> None:
    photos = _photos(tmp_path / "photos", 1)
    (photos / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    code, printed, err = command("slice", photos, "--onnx", yolo, *SMALL, "--out", tmp_path / "a", "--json")
    assert code == 1
    assert "broken.png" in err
    assert [row["input"] for row in json.loads(printed)["frames"]] == ["photo-0.png"]


def test_a_missing_or_wrong_model_is_one_sentence(tmp_path: Path, command: Run) -> None:
    photo = _photos(tmp_path / "photos", 1) / "photo-0.png"
    assert "no such file" in command("slice", photo, "--onnx", tmp_path / "no.onnx")[2]
    assert "cannot read it" in command("slice", photo, "--onnx", photo)[2]
