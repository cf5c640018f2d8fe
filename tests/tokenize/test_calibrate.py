"""Measuring a table: the mean of what the tokenizer itself keeps, resumable, refusing a foreign journal."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vgtok import InputError, Tokenizer
from vgtok.data.dataset import images_in
from vgtok.files import locked
from vgtok.tokenize import calibrate as measure
from vgtok.tokenize.calibrate import RUNGS, Sweep, SweepJob, measure_table, sweep_image
from vgtok.tokenize.retention import RetentionTable

SWEEP = Sweep(("tophat", "fused"), (0.0, 0.2), (10.0, 50.0, 90.0), canvas=(256, 192))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for seed in range(4):
        Image.fromarray(noise(seed)).save(images / f"{seed}.png")
    return images


def test_32_rungs_rising() -> None:
    assert len(RUNGS) == 32
    assert list(RUNGS) == sorted(set(RUNGS))
    assert (RUNGS[0], RUNGS[-1]) == (0.0, 100.0)


def test_a_table_is_the_mean_over_images(folder: Path, tmp_path: Path) -> None:
    table = measure_table("test", images_in(folder), "folder", SWEEP, tmp_path / "table.json", workers=1)
    for curve in table.curves:
        for percentile, retained in zip(curve.percentiles, curve.retained, strict=True):
            tokenizer = Tokenizer(percentile=percentile, rank=curve.rank, scorer=curve.scorer, canvas=SWEEP.canvas)
            expected = np.mean([tokenizer(path).retained for path in images_in(folder)])
            assert retained == pytest.approx(expected, abs=1e-7)
    assert table.measured_on["images"] == 4
    assert table.measured_on["canvas"] == (256, 192)


def test_a_killed_run_goes_on_where_it_stopped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, output = images_in(folder), tmp_path / "table.json"
    expected = measure_table("test", images, "x", SWEEP, tmp_path / "other.json", workers=1)
    seen: list[str] = []

    def dies_at_the_third(job: SweepJob) -> dict[str, object]:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(job.path.name)
        return sweep_image(job)

    monkeypatch.setattr(measure, "sweep_image", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        measure_table("test", images, "x", SWEEP, output, workers=1)
    assert not output.exists()
    journal = tmp_path / "table.json.partial"
    # The kill may come in the middle of a line.
    journal.write_text(journal.read_text() + '{"item": "2.png", "den')

    def counts(job: SweepJob) -> dict[str, object]:
        seen.append(job.path.name)
        return sweep_image(job)

    monkeypatch.setattr(measure, "sweep_image", counts)
    assert measure_table("test", images, "x", SWEEP, output, workers=1).curves == expected.curves
    assert seen == ["0.png", "1.png", "2.png", "3.png"]
    assert not journal.exists()


def test_a_journal_of_another_run_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "table.json.partial").write_text(json.dumps({"sweep": "other"}) + "\n")
    with pytest.raises(InputError, match="other images or settings"):
        measure_table("t", images_in(folder), "x", SWEEP, tmp_path / "table.json", workers=1)


def test_workers_give_the_same_table(folder: Path, tmp_path: Path) -> None:
    tables = [measure_table("t", images_in(folder), "x", SWEEP, tmp_path / f"{n}.json", workers=n) for n in (1, 2)]
    assert tables[0] == tables[1]


def test_impossible_sweeps_are_refused() -> None:
    with pytest.raises(InputError, match="scorer: 'magic'"):
        Sweep(("magic",))


def test_two_images_of_one_name_are_two_images(tmp_path: Path) -> None:
    paths = [tmp_path / "images" / part / "x.png" for part in "ab"]
    for path, pixels in zip(paths, (noise(0), np.full((96, 128, 3), 90, dtype=np.uint8)), strict=True):
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
    both = measure_table("t", paths, "yolo", SWEEP, tmp_path / "both.json", workers=1)
    alone = [measure_table("t", [path], "yolo", SWEEP, tmp_path / "one.json", workers=1) for path in paths]
    assert both.measured_on["images"] == 2
    for number, curve in enumerate(both.curves):
        np.testing.assert_allclose(
            curve.retained, np.mean([table.curves[number].retained for table in alone], axis=0), atol=1e-7
        )


@pytest.mark.parametrize("left", ["", '{"sweep": {"sco'])
def test_a_torn_header_restarts(folder: Path, tmp_path: Path, left: str) -> None:
    (tmp_path / "table.json.partial").write_text(left)
    assert len(measure_table("t", images_in(folder), "x", SWEEP, tmp_path / "table.json", workers=1).curves) == 4


def test_changed_pictures_and_damaged_lines_are_measured_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, output = images_in(folder), tmp_path / "table.json"
    with monkeypatch.context() as patched:
        patched.setattr(RetentionTable, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            measure_table("t", images, "x", SWEEP, output, workers=1)
    journal = tmp_path / "table.json.partial"
    lines = journal.read_bytes().splitlines()
    assert len(lines) == 5
    lines[2] = re.sub(rb'"tokens": \[\[\[(\d+)', rb'"tokens": [[["\1"', lines[2])
    lines[3] = b"\xff" + lines[3]
    journal.write_bytes(b"\n".join(lines) + b"\n")
    Image.fromarray(noise(9)).save(images[0])
    seen: list[str] = []

    def counts(job: SweepJob) -> dict[str, object]:
        seen.append(job.path.name)
        return sweep_image(job)

    monkeypatch.setattr(measure, "sweep_image", counts)
    table = measure_table("t", images, "x", SWEEP, output, workers=1)
    assert seen == ["0.png", "1.png", "2.png"]
    assert table.curves == measure_table("t", images, "x", SWEEP, tmp_path / "fresh.json", workers=1).curves


def test_two_runs_into_one_table_are_refused(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "table.json"
    with locked(tmp_path / ".table.json.lock", output), pytest.raises(InputError, match="another run is writing"):
        measure_table("t", images_in(folder), "x", SWEEP, output, workers=1)


def test_a_folder_that_was_removed_is_one_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removes(job: SweepJob) -> dict[str, object]:
        shutil.rmtree(tmp_path / "out")
        return sweep_image(job)

    monkeypatch.setattr(measure, "sweep_image", removes)
    with pytest.raises(InputError, match="cannot be written"):
        measure_table("t", images_in(folder), "x", SWEEP, tmp_path / "out" / "table.json", workers=1)


def test_a_name_that_is_no_text_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.png")
    try:
        Image.fromarray(noise(0)).save(path)
    except OSError:
        pytest.skip("the file system takes text alone")
    assert measure_table("t", [path], "x", SWEEP, tmp_path / "table.json", workers=1).measured_on["images"] == 1


def noise(seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (96, 128, 3), dtype=np.uint8)


def stopped(self: RetentionTable, path: Path) -> None:
    raise KeyboardInterrupt
