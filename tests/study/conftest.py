"""Rendered images in VisDrone's layout, the accuracy studies on three of them, and a detector that sees fine tokens."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from tests.detect.small_models import small_detector
from vgtok.data.dataset import Dataset, open_dataset
from vgtok.data.synthetic import render_scene
from vgtok.detect.detector import Detector
from vgtok.detect.result import Result as DetectorResult
from vgtok.detect.result import Timings
from vgtok.detect.saving import save_detector
from vgtok.study.cover import fine_cover
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Read, Result, Row
from vgtok.tokenize.canvas import read_image


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("visdrone")
    (folder / "images").mkdir()
    (folder / "annotations").mkdir()
    for seed in range(5):
        scene = render_scene(seed=seed, width=480, height=270)
        cv2.imwrite(str(folder / "images" / f"{seed}.jpg"), cv2.cvtColor(scene.pixels, cv2.COLOR_RGB2BGR))
        lines = [
            f"{int(x0)},{int(y0)},{int(x1 - x0)},{int(y1 - y0)},1,{min(label, 9) + 1},0,0"
            for (x0, y0, x1, y1), label in zip(scene.boxes, scene.labels, strict=True)
        ]
        (folder / "annotations" / f"{seed}.txt").write_text("\n".join(lines))
    return open_dataset(f"visdrone:{folder}")


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Inputs:
    """A model of random weights and one folder for all accuracy studies, so that they share cells."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("accuracy")
    save_detector(small_detector(), folder / "model")
    return Inputs(dataset, 1, out=folder / "out", models=(str(folder / "model"),), limit=3)


@pytest.fixture(scope="session")
def accuracy(inputs: Inputs) -> Callable[[str], Result]:
    """The result of an accuracy study by name, computed once."""
    return cache(lambda name: load_study(name).run(inputs))


@pytest.fixture
def sharp_sighted(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """A detector that finds exactly the objects of its classes that lie mostly under fine tokens."""
    save_detector(small_detector(), tmp_path / "model")
    objects = {read_image(path).tobytes(): dataset.annotations(number) for number, path in enumerate(dataset.images)}

    def on_canvas(self: Detector, image: Any, canvas: Any, tokens: Any, **_: Any) -> Any:
        truth = objects[image.tobytes()]
        seen = fine_cover(tokens, canvas.from_source(truth.boxes)) > 0.5
        known = [i for i in np.flatnonzero(seen) if dataset.names[truth.labels[i]] in self.names]
        labels = np.array([self.names.index(dataset.names[truth.labels[i]]) for i in known], dtype=np.int64)
        scores = np.linspace(0.9, 0.5, len(known)).astype(np.float32)
        return DetectorResult(truth.boxes[known], scores, labels, self.names, tokens, Timings(0, 0, 0), image)

    monkeypatch.setattr(Detector, "on_canvas", on_canvas)
    return Inputs(dataset, 1, out=tmp_path / "out", models=(str(tmp_path / "model"),))


def rows_of(name: str, dataset: Dataset) -> list[Row]:
    """The rows of a study of all five images."""
    result = load_study(name).run(Inputs(dataset, workers=1))
    assert result.read == Read("visdrone", 5)
    return list(result.rows)


def only(rows: list[Row], **wanted: Any) -> Row:
    """The one row with these values."""
    [row] = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return row
