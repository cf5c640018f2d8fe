"""Cells on disk: shared, whole, resumed after a kill, equal to running the detector, and kept apart by code."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import vgtok
from tests.detect.small_models import small_detector
from vgtok.data.dataset import AnnotatedDataset, Dataset
from vgtok.detect.detector import Detector
from vgtok.detect.saving import load_detector, save_detector
from vgtok.errors import InputError
from vgtok.evaluate.detections import run_detector
from vgtok.evaluate.evaluation import evaluate
from vgtok.evaluate.protocols import PROTOCOLS
from vgtok.study.accuracy import open_trial
from vgtok.study.cells import DETECTION, TRAINING, CellStore, Found, Reader, code_digest, fingerprint, run_cells
from vgtok.study.paper import GATED, TOP_HAT
from vgtok.study.result import Inputs
from vgtok.tokenize.tokenizer import Tokenizer

CANVAS = (192, 128)


@pytest.fixture
def detector() -> Detector:
    torch.set_num_threads(1)
    return small_detector()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The share of tokens of every pass through the detector."""
    passes: list[float] = []
    original = Detector.on_canvas

    def on_canvas(self: Detector, image: Any, canvas: Any, tokens: Any, **settings: Any) -> Any:
        passes.append(tokens.retained)
        return original(self, image, canvas, tokens, **settings)

    monkeypatch.setattr(Detector, "on_canvas", on_canvas)
    return passes


def run(
    detector: Detector, store: CellStore, readers: list[Reader], images: Sequence[Path], workers: int = 1
) -> dict[Reader, list[Found]]:
    return run_cells("unused", detector, store, readers, images, workers=workers, label="test")


def test_a_cell_is_computed_once(
    tmp_path: Path, detector: Detector, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = counted(monkeypatch)
    store = CellStore(tmp_path, fingerprint(detector), "query", 50)
    some, more = Tokenizer(budget=0.5, canvas=CANVAS), Tokenizer(budget=0.3, canvas=CANVAS)
    first = run(detector, store, [some, some], dataset.images[:2])
    assert len(passes) == 2
    second = run(detector, store, [some, more], dataset.images[:3])
    assert len(passes) == 2 + 1 + 3
    for one, other in zip(first[some], second[some], strict=False):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        assert one.ms == other.ms
    description = json.loads((store.cell(some) / "cell.json").read_text())
    assert "budget=0.5" in description["reader"]


def test_cells_of_other_weights_heads_and_readers_lie_apart(tmp_path: Path, detector: Detector) -> None:
    reader = Tokenizer(budget=0.5, canvas=CANVAS)
    folders = {
        CellStore(tmp_path, fingerprint(detector), "query", 50).cell(reader),
        CellStore(tmp_path, fingerprint(small_detector(seed=4)), "query", 50).cell(reader),
        CellStore(tmp_path, fingerprint(detector), "atss", 50).cell(reader),
        CellStore(tmp_path, fingerprint(detector), "query", 60).cell(reader),
        CellStore(tmp_path, fingerprint(detector), "query", 50).cell(Tokenizer(budget=0.5, canvas=(256, 128))),
    }
    assert len(folders) == 5
    save_detector(detector, tmp_path / "model")
    assert fingerprint(load_detector(tmp_path / "model")) == fingerprint(detector)


def test_several_processes_find_the_same(tmp_path: Path, detector: Detector, dataset: Dataset) -> None:
    save_detector(detector, tmp_path / "model")
    reader = Tokenizer(budget=0.5, canvas=CANVAS)
    one, two = (CellStore(tmp_path / name, fingerprint(detector), "query", 50) for name in ("one", "two"))
    expected = run(detector, one, [reader], dataset.images[:2])[reader]
    model = str(tmp_path / "model")
    settings: dict[str, Any] = {"workers": 2, "label": "test"}
    found = run_cells(model, detector, two, [reader], dataset.images[:2], **settings)[reader]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.boxes, other.boxes, atol=1e-3)
        assert mine.labels.tolist() == other.labels.tolist()
    stale = CellStore(tmp_path / "stale", "of other weights", "query", 50)
    with pytest.raises(InputError, match="changed while the study ran"):
        run_cells(model, detector, stale, [reader], dataset.images[:2], **settings)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", b"half"])
def test_a_damaged_file_is_computed_again(
    tmp_path: Path, detector: Detector, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    store = CellStore(tmp_path, fingerprint(detector), "query", 50)
    reader = Tokenizer(budget=0.5, canvas=CANVAS)
    expected = run(detector, store, [reader], dataset.images[:1])[reader][0]
    [path] = store.cell(reader).glob("*.npz")
    path.write_bytes(path.read_bytes()[:300] if damage == b"half" else damage)
    passes = counted(monkeypatch)
    again = run(detector, store, [reader], dataset.images[:1])[reader][0]
    assert len(passes) == 1
    np.testing.assert_array_equal(again.boxes, expected.boxes)
    assert store.load(reader, path.stem) is not None


def test_a_file_of_unequal_lengths_counts_as_damaged(tmp_path: Path) -> None:
    store = CellStore(tmp_path, "weights", "query", 50)
    reader = Tokenizer(budget=0.5)
    wrong = Found(np.zeros((2, 4), np.float32), np.zeros(3, np.float32), np.zeros(3, np.int16), 1.0, 1.0)
    store.save(reader, "image", wrong)
    assert store.load(reader, "image") is None


def test_a_cached_cell_scores_as_the_detector_itself_does(tmp_path: Path, dataset: Dataset) -> None:
    torch.set_num_threads(1)
    # Weights this random rarely find anything; many boxes of every class do.
    save_detector(small_detector(queries=200), tmp_path / "model")
    inputs = Inputs(dataset, 1, out=tmp_path / "out", models=(str(tmp_path / "model"),))
    trial = open_trial(inputs)
    measured = trial.measure({0.5: trial.tokenizer(GATED, 0.5)}, "test")[0.5]
    annotated = cast(AnnotatedDataset, dataset)
    direct = run_detector(trial.detector, annotated, Tokenizer(0.5, canvas=trial.detector.canvas), 500)
    expected = evaluate(annotated, direct.detections, PROTOCOLS["visdrone"])
    assert measured.retained == pytest.approx(direct.retained)
    assert measured.evaluation.detections == expected.detections > 0
    for metric, value in expected.metrics.items():
        assert measured[metric] == (None if value is None else pytest.approx(value, abs=1e-3))
    # And the bootstrap's draws lie around it.
    assert measured.samples["AP50"].mean() == pytest.approx(expected.metrics["AP50"] or 0.0, abs=5)


SCRIPT = """
import sys
from pathlib import Path
import torch
from vgtok.data.dataset import open_dataset
from vgtok.study.accuracy import open_trial
from vgtok.study.paper import TOP_HAT
from vgtok.study.result import Inputs
torch.set_num_threads(1)
data, model, out = sys.argv[1:]
trial = open_trial(Inputs(open_dataset(data), 1, out=Path(out), models=(model,)))
trial.measure({budget: trial.tokenizer(TOP_HAT, budget) for budget in (0.8, 0.7, 0.6, 0.4)}, "killed")
"""


def test_a_killed_run_resumes(
    tmp_path: Path, detector: Detector, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_detector(detector, tmp_path / "model")
    folder = dataset.images[0].parent.parent
    arguments = [f"visdrone:{folder}", str(tmp_path / "model"), str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (done := list((tmp_path / "out").glob("cells/*/*.npz"))) and process.poll() is None:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = list((tmp_path / "out").glob("cells/*/*.npz"))
    assert done
    times = {path: path.stat().st_mtime_ns for path in done}
    passes = counted(monkeypatch)
    inputs = Inputs(dataset, 1, out=tmp_path / "out", models=(str(tmp_path / "model"),))
    trial = open_trial(inputs)
    readers = {budget: trial.tokenizer(TOP_HAT, budget) for budget in (0.8, 0.7, 0.6, 0.4)}
    resumed = trial.measure(readers, "resumed")
    assert len(passes) == 4 * len(dataset.images) - len(done)
    assert {path: path.stat().st_mtime_ns for path in done} == times
    fresh = open_trial(Inputs(dataset, 1, out=tmp_path / "fresh", models=(str(tmp_path / "model"),)))
    for budget, cell in fresh.measure(readers, "fresh").items():
        assert cell.evaluation.metrics == resumed[budget].evaluation.metrics


PACKAGE = Path(vgtok.__file__).parent
CELL_SCRIPT = """
from pathlib import Path
from vgtok.study.cells import CellStore
from vgtok.tokenize.tokenizer import Tokenizer
print(CellStore(Path("out"), "weights", "query", 50).cell(Tokenizer(budget=0.5)).name)
"""


def cell_of(folder: Path) -> str:
    """The name of a cell by the package in `folder`, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", CELL_SCRIPT], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "vgtok", ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_a_changed_tokenizer_does_not_find_the_cells_of_the_old_one(copy: Path) -> None:
    here = CellStore(Path("out"), "weights", "query", 50).cell(Tokenizer(budget=0.5)).name
    source = copy / "vgtok" / "tokenize" / "geometry.py"
    edit(source, "LUMA_WEIGHTS = (77, 150, 29)", "# Of BT.601.\nLUMA_WEIGHTS = (77,  150,  29)")
    assert cell_of(copy) == here
    edit(source, "(77,  150,  29)", "(76, 150, 30)")
    assert cell_of(copy) != here


def test_digests_are_of_what_they_name() -> None:
    assert code_digest(DETECTION) == code_digest(DETECTION)
    assert len({code_digest(DETECTION), code_digest(TRAINING), code_digest(("tokenize",))}) == 3
    assert all((PACKAGE / part).exists() for part in (*DETECTION, *TRAINING))
