"""Measuring a table: the mean of what the tokenizer itself keeps, resumable, refusing a foreign journal."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vgtok import InputError, Tokenizer
from vgtok.calibrate import measure
from vgtok.calibrate.measure import RUNGS, Sweep, SweepJob, measure_table, sweep_image
from vgtok.data.dataset import images_in

SWEEP = Sweep(("tophat", "fused"), (0.0, 0.2), (10.0, 50.0, 90.0), canvas=(256, 192))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 256, (96, 128, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{seed}.png")
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
    journal.write_text(journal.read_text() + '{"image": "2.png", "den')

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
