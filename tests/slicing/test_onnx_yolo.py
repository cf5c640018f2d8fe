"""YOLO files of the common exports: the same objects, whatever the shape of the output."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.slicing.yolo_files import CELLS, SIDE, candidates, columns, finished, write_yolo
from vgtok.errors import InputError
from vgtok.names import COCO
from vgtok.slicing.onnx_yolo import YoloOnnx, output_kind

ROWS = np.array(
    [(8, 8, 24, 24, 0.9, 1), (9, 8, 25, 24, 0.5, 1), (8, 8, 24, 24, 0.6, 0), (40, 30, 60, 50, 0.4, 1)],
    dtype=np.float32,
)
KEPT = [(8, 8, 24, 24), (8, 8, 24, 24), (40, 30, 60, 50)]
FRAME = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)


@pytest.mark.parametrize("make", [lambda: columns(ROWS, 3), lambda: candidates(ROWS, 3), lambda: finished(ROWS)])
def test_every_layout_gives_the_same_objects(make: Any, tmp_path: Path) -> None:
    detector = YoloOnnx(write_yolo(tmp_path / "a.onnx", make(), names="{0: 'ox', 1: 'cow', 2: 'calf'}"))
    boxes, scores, labels = detector(FRAME)
    np.testing.assert_allclose(boxes, KEPT, atol=1e-4)
    np.testing.assert_allclose(scores, [0.9, 0.6, 0.4], atol=1e-6)
    assert [detector.names[label] for label in labels] == ["cow", "ox", "cow"]


def test_one_class_with_objectness_is_not_taken_for_finished_detections(tmp_path: Path) -> None:
    rows = ROWS * np.array([1, 1, 1, 1, 1, 0], dtype=np.float32)
    _, scores, labels = YoloOnnx(write_yolo(tmp_path / "a.onnx", candidates(rows, 1)))(FRAME)
    np.testing.assert_allclose(scores, [0.9, 0.4], atol=1e-6)
    assert labels.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 84, 8400), "columns"),
        ((1, 5, 8400), "columns"),
        ((1, 84, 33600 + 400), "columns"),
        ((1, 25200, 85), "rows"),
        ((1, 25200, 6), "rows"),
        ((1, 8400, 85), "rows"),
        ((1, 300, 6), "finished"),
        ((1, 100, 6), "finished"),
        ((1, 8400), None),
        ((1, 4, 8400), None),
    ],
)
def test_kinds_of_output_by_shape(shape: tuple[int, ...], kind: str | None) -> None:
    assert output_kind(shape, (640, 640)) == kind


def test_boxes_come_back_to_a_frame_of_another_shape(tmp_path: Path) -> None:
    # 128 x 64 px are halved and centered between bars of 16 px.
    detector = YoloOnnx(write_yolo(tmp_path / "a.onnx", columns(ROWS[:1], 2)))
    boxes, _, _ = detector(np.zeros((64, 128, 3), dtype=np.uint8))
    np.testing.assert_allclose(boxes, [(16, 0, 48, 16)])


def test_batches_of_any_size_where_the_file_takes_them(tmp_path: Path) -> None:
    path = write_yolo(tmp_path / "a.onnx", columns(ROWS, 80), dynamic=True)
    detector = YoloOnnx(path, size=SIDE, threads=1)
    assert (detector.batch, detector.names) == (None, COCO)
    assert [len(one[1]) for one in detector.detect([FRAME] * 3)] == [3, 3, 3]
    assert YoloOnnx(write_yolo(tmp_path / "b.onnx", columns(ROWS, 80), half=True)).detect([]) == []


def test_half_precision_inputs(tmp_path: Path) -> None:
    assert len(YoloOnnx(write_yolo(tmp_path / "a.onnx", columns(ROWS, 2), half=True))(FRAME)[1]) == 3


def test_what_is_no_yolo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        YoloOnnx(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(InputError, match="cannot read it"):
        YoloOnnx(tmp_path / "text.onnx")
    with pytest.raises(InputError, match="is no YOLO's"):
        YoloOnnx(write_yolo(tmp_path / "a.onnx", np.zeros((1, 3, CELLS), dtype=np.float32)))(FRAME)


@pytest.mark.parametrize("names", ["{0: 'ox'", "[1, 2]", "__import__('os')", "{'a': 1}"])
def test_names_are_read_as_data_only(names: str, tmp_path: Path) -> None:
    detector = YoloOnnx(write_yolo(tmp_path / "a.onnx", columns(ROWS, 2), names=names))
    assert detector.names == ("class 0", "class 1")
