"""A folder with every kind of bad file in it: each is one line, and every good file is done."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tokenize.hostile_files import NOT_READABLE, two_formats

from .conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, data in enumerate(NOT_READABLE.values()):
        (folder / f"bad{number}.jpg").write_bytes(data)
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "folder.png").mkdir()
    # Its TIFF is one pixel, and that is a frame like any other.
    (folder / "one.tif").write_bytes(two_formats(640))
    pixels = np.random.default_rng(0).integers(0, 256, (90, 160, 3), dtype=np.uint8)
    for name in (b"a.png", b"z.png", b"not \xff utf-8.png", "Übersicht 1.png".encode()):
        Image.fromarray(pixels).save(os.fsencode(folder) + b"/" + name)
    return folder


GOOD = 5


def test_tokenize_does_every_good_file(vgtok: Run, folder: Path, tmp_path: Path) -> None:
    for words in (("--json",), ()):
        code, out, err = vgtok("tokenize", folder, "--canvas", "320x192", "--out", tmp_path / "out", *words)
        assert code == 1
        assert f"{GOOD} images tokenized, {len(NOT_READABLE) + 1} inputs could not be" in err
        if words:
            assert len(json.loads(out)["images"]) == GOOD
    assert len(list((tmp_path / "out").glob("*.png"))) == GOOD


def test_detect_does_every_good_file(vgtok: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    for words in (("--json",), ()):
        code, _, err = vgtok("detect", folder, "--model", model, "--out", tmp_path / "out", *words)
        assert code == 1
        assert f"{GOOD} frames finished, {len(NOT_READABLE) + 1} inputs could not be" in err
    assert len(list((tmp_path / "out").glob("*.jpg"))) == GOOD
