"""`--budget-over stream` of `vgtok detect` and `vgtok tokenize`: the mean is held, also over a stop."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import counting
from tests.cli.test_video import Picture, logged
from tests.command_line import Run
from vgtok.cli.video import write_video

STREAM = ("--budget", 0.4, "--budget-over", "stream")


def _frames(count: int) -> Iterator[Picture]:
    """Gray frames of which a changing share is full of dots."""
    generator = np.random.default_rng(0)
    for number in range(count):
        pixels = generator.integers(88, 94, (192, 320, 3), dtype=np.uint8)
        busy = 0.5 + 0.5 * np.sin(number / 3)
        for _ in range(round(200 * busy)):
            x, y = generator.integers(0, 20 + round(290 * busy)), generator.integers(0, 186)
            pixels[y : y + 3, x : x + 3] = 230
        yield pixels


def test_a_video_has_the_mean_and_every_frame_its_bounds_also_after_a_stop(
    vgtok: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "clip.mp4", _frames(60), 25)
    command = ("detect", tmp_path / "clip.mp4", "--model", model, *STREAM, "--write", "coco", "--out", tmp_path / "a")
    with monkeypatch.context() as patch:
        counting(patch, stop_after=25)
        assert vgtok(*command)[0] == 130
    assert len(logged(tmp_path / "a")) == 25
    code, printed, _ = vgtok(*command, "--json")
    assert code == 0
    shares = [entry["retained"] for entry in logged(tmp_path / "a")]
    assert len(shares) == 60
    assert abs(json.loads(printed)["videos"][0]["retained"] - 0.4) <= 0.005
    assert 0.2 <= min(shares) < 0.35
    assert 0.45 < max(shares) <= 0.6


def test_a_folder_is_a_stream_and_pictures_show_the_tokens_of_each(vgtok: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number, pixels in enumerate(_frames(12)):
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number:02d}.png")
    arguments = ("detect", tmp_path / "photos", "--model", model, *STREAM, "--write", "tokens", "--out", tmp_path / "a")
    rows = json.loads(vgtok(*arguments, "--json")[1])["frames"]
    assert len({row["tokens"] for row in rows}) > 3
    out = ("--out", tmp_path / "b", "--canvas", "320x192")
    again = json.loads(vgtok("tokenize", tmp_path / "photos", *STREAM, *out, "--json")[1])["images"]
    assert len({row["tokens"] for row in again}) > 3
    assert vgtok("tokenize", tmp_path / "photos", *STREAM, *out)[0] == 0


def test_a_stream_without_a_budget_is_refused(vgtok: Run, tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    _, _, err = vgtok("tokenize", tmp_path / "a.png", "--percentile", 70, "--budget-over", "stream")
    assert "a stream needs --budget" in err
