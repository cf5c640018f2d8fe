"""Frames rendered at their tokens: against OpenCV, and through a detector in an ONNX file."""

from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.slicing.yolo_files import columns, write_yolo
from vgtok import Tokenizer
from vgtok.data.dataset import Dataset
from vgtok.data.synthetic import render_scene
from vgtok.study import kept
from vgtok.study.kept import render_at_tokens
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs

ROWS = np.array([(8, 20, 24, 30, 0.9, 2), (40, 30, 44, 36, 0.2, 0)], dtype=np.float32)


def test_each_token_is_its_region_resampled_to_16_px_and_back() -> None:
    image = render_scene(3, 300, 200).pixels
    tokens = Tokenizer(budget=0.4, canvas="native")(image)
    rendered = render_at_tokens(image, tokens)
    assert set(tokens.sizes.tolist()) == {16, 32, 64}
    for x, y, size in zip(tokens.x, tokens.y, tokens.sizes, strict=True):
        block, made = (pixels[y : y + size, x : x + size] for pixels in (image, rendered))
        if size == 16:
            np.testing.assert_array_equal(made, block)
            continue
        # Regions that reach beyond the image go on with its edge.
        short = ((0, size - block.shape[0]), (0, size - block.shape[1]), (0, 0))
        whole = np.pad(block, short, mode="edge").astype(np.float32)
        small = cv2.resize(whole, (16, 16), interpolation=cv2.INTER_AREA)
        back = cv2.resize(small, (int(size), int(size)), interpolation=cv2.INTER_LINEAR)
        assert np.abs(back[: made.shape[0], : made.shape[1]] - made).max() <= 0.51


def test_all_tokens_leave_the_frame_as_it_is() -> None:
    image = render_scene(3, 130, 70).pixels
    np.testing.assert_array_equal(render_at_tokens(image, Tokenizer(budget=1.0, canvas="native")(image)), image)


def test_rows_for_every_tokenizer_and_an_interrupted_run_goes_on(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yolo = str(write_yolo(tmp_path / "yolo.onnx", columns(ROWS, 80)))
    given = Inputs(dataset, 1, out=tmp_path, models=(yolo,), limit=2, class_map=("pedestrian=person",))
    result = load_study("kept").run(given)
    assert [(row["tokenizer"], row["budget"]) for row in result.rows][:2] == [("dense", 1.0), ("Compact", 0.4)]
    assert len(result.rows) == 10
    # The file answers the same whatever it is shown.
    assert {row["difference"] for row in result.rows} == {0.0}
    stored = list((tmp_path / "kept").rglob("*.npz"))
    assert len(stored) == 2
    stored[0].write_bytes(b"cut short")
    read: list[Path] = []
    real = kept._read
    monkeypatch.setattr(kept, "_read", lambda job, reader: (read.append(job.path), real(job, reader)))
    again = load_study("kept").run(given)
    assert len(read) == 1
    assert [row["AP"] for row in again.rows] == [row["AP"] for row in result.rows]
