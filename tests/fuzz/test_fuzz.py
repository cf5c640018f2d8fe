"""A short run of `make fuzz`, the watchdog itself, and whole folders of fuzzed files through the command line."""

import json
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Run, model, vgtok  # noqa: F401
from tests.fuzz import harness
from tests.fuzz.harness import Plan, run
from tests.fuzz.kinds import SEEDS, kinds
from tests.fuzz.mutations import mutate_bytes

LONG = 8
"""Of the cases in the suite the model gets few: each builds one."""


def test_nothing_foreign_leaves_the_library(tmp_path: Path) -> None:
    cases = dict.fromkeys(kinds(tmp_path / "seeds"), 250) | {"model": LONG, "image": 1500}
    report = run(Plan(cases, seed=1, workers=2, seconds=20.0, out=tmp_path / "failures"))
    assert report.failures == []
    assert report.total > 500
    assert all(report.taken[kind] + report.refused[kind] for kind in cases)


def test_cases_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, second = (kinds(tmp_path / name) for name in "ab")
    for name in first:
        assert first[name].make(3, 5) == second[name].make(3, 5)
        assert len({first[name].make(3, number) for number in range(20)}) > 5


def test_failures_hangs_and_crashes_are_found_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are started anew behind what stopped them; the run itself goes on."""
    monkeypatch.setattr(harness, "HANG", 2.0)
    monkeypatch.setattr(harness, "work", misbehave)
    report = run(Plan({"recipe": 8}, seed=0, workers=1, seconds=60.0, out=tmp_path))
    assert report.failed == {"recipe": 2}
    assert report.refused == {"recipe": 6}
    assert "took over 2 s" in report.failures[0]
    assert "ended the process (-9)" in report.failures[1]
    assert len(list(tmp_path.glob("*.input"))) == 2


def misbehave(plan: Plan, worker: int, start: int, clock: list[float], counts: list[int]) -> None:
    """A worker whose third case hangs and whose sixth kills it."""
    import os
    import signal

    for place in range(start, 8):
        clock[:3] = [time.time(), float(place), time.process_time()]
        while place == 2:
            pass
        if place == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        clock[0] = 0.0
        counts[1] += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fuzzed files between good ones."""
    folder = tmp_path / "frames"
    folder.mkdir()
    seeds = [path.read_bytes() for path in sorted(SEEDS.iterdir())]
    for number in range(60):
        data = mutate_bytes(Random(number), seeds)
        suffix = (".jpg", ".png", ".tif", ".bmp", ".webp")[number % 5]
        (folder / f"{number:03d}{suffix}").write_bytes(data)
        if number % 15 == 0:
            pixels = np.random.default_rng(number).integers(0, 256, (64, 96, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:03d}-good.png")
    return folder


@pytest.mark.parametrize("verb", ["tokenize", "detect"])
def test_a_folder_of_fuzzed_files_is_done_to_its_end(
    vgtok: Run,  # noqa: F811
    model: Path,  # noqa: F811
    folder: Path,
    tmp_path: Path,
    verb: str,
) -> None:
    options = ("--canvas", "128x64") if verb == "tokenize" else ("--model", model)
    code, out, err = vgtok(verb, folder, *options, "--out", tmp_path / "out", "--json")
    assert code == 1, "some of the files cannot be read"
    assert "Traceback" not in err
    document = json.loads(out)
    done = [Path(row["image"]).name for row in document["images"]] if verb == "tokenize" else []
    done = done or [row["input"] for row in document["frames"]]
    assert {f"{number:03d}-good.png" for number in range(0, 60, 15)} <= set(done)
    assert len(done) + len(document["failed"]) == 64
