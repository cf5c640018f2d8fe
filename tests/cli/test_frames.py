"""`vgtok detect` and `vgtok tokenize` on large images and geo rasters."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.command_line import Run
from tests.slicing.rasters import TURNED, as_bands, write_raster, write_vrt
from vgtok.cli.frames import Reading, WindowLog
from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.slicing.windows import WindowFound, Windows
from vgtok.tokenize import Tokenizer

SCENE = render_scene(seed=3, width=400, height=330).pixels
SHORT = ("--canvas", "windows:256x256", "--score-threshold", 0.001)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rasters that can be read, of two coordinate systems, a photo, and three rasters that cannot."""
    folder = tmp_path / "rasters"
    folder.mkdir()
    deep = np.concatenate([as_bands(SCENE), as_bands(SCENE)[:1]]).astype(np.uint16) * 10
    write_raster(folder / "deep.tif", deep)
    write_raster(
        folder / "turned.tif", deep, transform=TURNED, crs="EPSG:32634", tiled=True, blockxsize=64, blockysize=64
    )
    Image.fromarray(SCENE).save(folder / "photo.png")
    (folder / "cut.tif").write_bytes((folder / "deep.tif").read_bytes()[:300_000])
    write_raster(folder / "empty.tif", np.zeros((4, 90, 90), np.uint16), nodata=0)
    write_raster(folder / "three.tif", as_bands(SCENE).astype(np.float32))
    return folder


def test_rasters_become_geo_files_and_bad_ones_one_sentence(
    vgtok: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    import pyogrio

    out = tmp_path / "out"
    outputs = [word for kind in ("geojson", "gpkg", "coco", "picture", "tokens") for word in ("--write", kind)]
    # Bands are for rasters, so the photo is left to another command.
    (folder / "photo.png").rename(tmp_path / "photo.png")
    words = ("detect", folder, "--model", model, *SHORT, "--bands", "4,3,2", "--out", out, *outputs, "--json")
    code, printed, err = vgtok(*words)
    document = json.loads(printed)
    assert code == 1
    errors = _errors(document)
    assert errors.keys() == {"cut.tif", "empty.tif", "three.tif"}
    assert "the raster is damaged or cut short" in errors["cut.tif"]
    assert errors["empty.tif"] == "empty.tif: every pixel is nodata; there is nothing to read"
    assert errors["three.tif"].endswith("three.tif: has no band 4; it has 3, counted from 1")
    assert "Traceback" not in err
    rows = document["frames"]
    assert [row["input"] for row in rows] == ["deep.tif", "turned.tif"]
    assert all(row["georeferenced"] and row["canvas"] == "6 of 6 windows" for row in rows)
    assert rows[0]["detections"] > 0
    features = json.loads((out / "detections.geojson").read_text(encoding="utf-8"))["features"]
    assert len(features) == sum(row["detections"] for row in rows)
    assert len(json.loads((out / "detections.json").read_text(encoding="utf-8"))) == len(features)
    assert len(pyogrio.list_layers(out / "detections.gpkg")) == 2
    with Image.open(out / "deep.tokens.jpg") as drawn:
        assert drawn.size == (400, 330)
    assert not list(out.glob("*.windows.jsonl"))


def _errors(document: dict[str, Any]) -> dict[str, str]:
    return {row["input"]: row["error"] for row in document["failed"]}


def test_images_without_a_place_are_named(vgtok: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    photo = folder / "photo.png"
    code, _, err = vgtok("detect", photo, "--model", model, "--write", "geojson", "--write", "gpkg", "--out", out)
    assert code == 0, err
    assert "not in detections.geojson, for lack of a georeference in the file: photo.png" in err
    assert json.loads((out / "detections.geojson").read_text(encoding="utf-8"))["features"] == []
    assert not (out / "detections.gpkg").exists()


def test_the_table_says_how_images_were_read(vgtok: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    photo = folder / "photo.png"
    _, fitted, _ = vgtok("detect", photo, "--model", model, "--out", tmp_path / "a")
    assert "canvas: 155 x 128 px" in fitted
    _, native, _ = vgtok("detect", photo, "--model", model, "--out", tmp_path / "b", "--canvas", "native")
    assert "canvas: 400 x 330 px" in native
    _, windows, _ = vgtok("detect", photo, "--model", model, "--out", tmp_path / "c", "--windows-over", 300)
    assert "windows" in windows
    assert "canvas" not in windows
    _, printed, _ = vgtok("tokenize", photo, "--out", tmp_path / "d", "--windows-over", 300, "--json")
    row = json.loads(printed)["images"][0]
    assert row["canvas"] == "windows"
    assert row["tokens"] == len(Tokenizer(budget=0.4, canvas="native")(SCENE))


def test_tokens_of_a_raster(vgtok: Run, folder: Path, tmp_path: Path) -> None:
    words = ("--bands", "1,2,3", "--value-range", "0,2550", "--canvas", "windows", "--write", "json", "--json")
    code, printed, err = vgtok("tokenize", folder / "deep.tif", "--out", tmp_path / "out", *words)
    assert code == 0, err
    written = json.loads(Path(json.loads(printed)["images"][0]["written"][0]).read_text(encoding="utf-8"))
    expected = Tokenizer(budget=0.4, canvas="native")(SCENE)
    assert (written["x"], written["y"]) == (expected.x.tolist(), expected.y.tolist())


def test_an_interrupted_frame_goes_on_where_it_was(
    vgtok: Run, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("detect", folder / "deep.tif", "--model", model, *SHORT, "--write", "coco", "--json", "--out")
    _, _, err = vgtok(*words, tmp_path / "whole")
    whole = (tmp_path / "whole" / "detections.json").read_text(encoding="utf-8")
    original, count = WindowLog.__setitem__, []

    def stopped(self: WindowLog, number: int, found: WindowFound) -> None:
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(number)
        original(self, number, found)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(WindowLog, "__setitem__", stopped)
        code, _, err = vgtok(*words, out)
    assert code == 130, err
    # A kill in the middle of a line costs that window.
    with (out / "deep.windows.jsonl").open("ab") as file:
        file.write(b'{"item": "2", "boxes": [[')
    count.clear()

    def counted(self: WindowLog, number: int, found: WindowFound) -> None:
        count.append(number)
        original(self, number, found)

    monkeypatch.setattr(WindowLog, "__setitem__", counted)
    code, _, err = vgtok(*words, out)
    assert code == 0, err
    assert count == [2, 3, 4, 5]
    assert (out / "detections.json").read_text(encoding="utf-8") == whole


def test_vrts_are_read_by_name_and_passed_over_in_folders(vgtok: Run, model: Path, tmp_path: Path) -> None:
    write_raster(tmp_path / "part.tif", as_bands(SCENE))
    write_vrt(tmp_path / "all.vrt", "part.tif", SCENE.shape[:2])
    write_vrt(tmp_path / "bad.vrt", "../part.tif", SCENE.shape[:2])
    words = ("--model", model, "--write", "coco", "--json")
    code, printed, err = vgtok("detect", tmp_path / "all.vrt", tmp_path / "bad.vrt", *words, "--out", tmp_path / "a")
    assert code == 1
    assert [row["input"] for row in json.loads(printed)["frames"]] == ["all.vrt"]
    assert "not a file in its own folder or below" in err
    code, printed, err = vgtok("detect", tmp_path, *words, "--out", tmp_path / "b")
    document = json.loads(printed)
    assert [row["input"] for row in document["frames"]] == ["part.tif"]
    assert document["passed_over"][".vrt"] == 2


def test_without_the_extra_one_sentence_says_what_to_install(
    vgtok: Run, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rasterio", None)
    for words in (("--bands", "4,3,2"), ("--write", "geojson")):
        code, _, err = vgtok("detect", folder / "deep.tif", "--model", model, *words, "--out", tmp_path / words[0])
        assert code == 1
        assert "rasterio is not installed; pip install 'vgtok[geo]'" in err
    code, _, err = vgtok("detect", folder / "deep.tif", "--model", model, "--out", tmp_path / "out")
    assert code == 1
    assert "vgtok[geo]" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--canvas", "windows:1000x640"), "not a multiple of 64"),
        (("--canvas", "tall"), "not WIDTHxHEIGHT"),
        (("--bands", "red"), "--bands red"),
        (("--value-range", "5"), "--value-range 5"),
        (("--value-range", "9,1"), "--value-range 9,1"),
        (("--value-range", "2%,9"), "--value-range 2%,9"),
        (("--bands", "1"), "--bands is for geo rasters"),
    ],
)
def test_wrong_options(vgtok: Run, model: Path, folder: Path, words: tuple[str, ...], said: str) -> None:
    code, _, err = vgtok("detect", folder / "photo.png", "--model", model, "--out", folder / "out", *words)
    assert code == 1
    assert said in err


def test_only_options_that_were_given_change_a_run() -> None:
    assert Reading.of(None, 4096, None, None).settings() == {}
    assert Reading.of("windows:640x512", 100, "4,3,2", "2%,98%").settings() == {
        "canvas": {"width": 640, "height": 512, "overlap": 128},
        "windows_over": 100,
        "bands": (4, 3, 2),
    }
    assert Reading.of("windows", 4096, None, "0,9").settings() == {"canvas": "windows", "value_range": (0.0, 9.0)}


def test_a_log_of_windows_keeps_what_was_found(tmp_path: Path) -> None:
    found = WindowFound(np.array([[0.1, 2, 3, 4.5]]), np.array([0.3], np.float32), np.array([2], np.int64), 1.5, 2.5)
    log = WindowLog(tmp_path / "log.jsonl", {"a": 1})
    log[7] = found
    log[9] = WindowFound(np.zeros((0, 4)), np.zeros(0, np.float32), np.zeros(0, np.int64), 0.0, 0.0)
    again = WindowLog(tmp_path / "log.jsonl", {"a": 1})
    assert list(again) == [7, 9]
    np.testing.assert_array_equal(again[7].boxes, found.boxes)
    assert again[7].scores[0] == found.scores[0]
    assert again[9].boxes.shape == (0, 4)
    assert len(WindowLog(tmp_path / "log.jsonl", {"a": 2})) == 0


def test_reading_windows() -> None:
    assert Reading(canvas=Windows(640, 512)).windows(_frame(10, 10), (2048, 1152)) == Windows(640, 512)
    assert Reading().windows(_frame(10, 4096), (2048, 1152)) is None
    assert Reading().windows(_frame(4097, 10), (2048, 1152)) == Windows(2048, 1152)
    assert Reading(canvas="native").windows(_frame(5000, 10), (2048, 1152)) is None
    with pytest.raises(InputError):
        Reading.of("windows:x", 1, None, None)


def _frame(height: int, width: int) -> Any:
    from vgtok.slicing.frames import ArrayFrame

    return ArrayFrame(np.zeros((height, width, 3), np.uint8))
