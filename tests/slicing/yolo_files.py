"""Small ONNX files with the inputs and outputs of YOLO exports, whose candidates are chosen by the test."""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIDE = 64
CELLS = 64 + 16 + 4
"""Candidates of a 64-px input at strides 8, 16 and 32."""


def columns(rows: NDArray[np.float32], classes: int, count: int = CELLS) -> NDArray[np.float32]:
    """Return (N, 6) x0 y0 x1 y1 score label as the (1, 4 + C, count) output of YOLOv8."""
    output = np.zeros((1, 4 + classes, count), dtype=np.float32)
    output[0, :4, : len(rows)] = _centers(rows).T
    output[0, 4 + rows[:, 5].astype(int), np.arange(len(rows))] = rows[:, 4]
    return output


def candidates(rows: NDArray[np.float32], classes: int, count: int = 3 * CELLS) -> NDArray[np.float32]:
    """Return the same as the (1, count, 5 + C) output of YOLOv5, the score split between objectness and class."""
    output = np.zeros((1, count, 5 + classes), dtype=np.float32)
    output[0, : len(rows), :4] = _centers(rows)
    output[0, : len(rows), 4] = np.sqrt(rows[:, 4])
    output[0, np.arange(len(rows)), 5 + rows[:, 5].astype(int)] = np.sqrt(rows[:, 4])
    return output


def finished(rows: NDArray[np.float32], count: int = 30) -> NDArray[np.float32]:
    """Return the same as the (1, count, 6) output of a file that suppresses by itself."""
    output = np.zeros((1, count, 6), dtype=np.float32)
    output[0, : len(rows)] = rows
    return output


def _centers(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([(rows[:, :2] + rows[:, 2:4]) / 2, rows[:, 2:4] - rows[:, :2]], axis=1)


def write_yolo(
    path: Path,
    output: NDArray[np.float32],
    *,
    names: str | None = None,
    dynamic: bool = False,
    half: bool = False,
) -> Path:
    """Write a file that answers every image with `output`, plus nothing times the image."""
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    shape = ["batch", 3, "height", "width"] if dynamic else [1, 3, SIDE, SIDE]
    image = helper.make_tensor_value_info("images", kind, shape)
    answer = helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", *output.shape[1:]])
    nodes = [
        helper.make_node("Cast", ["images"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["wide", "axes"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "nothing"], ["zero"]),
        helper.make_node("Reshape", ["zero", "shape"], ["zeros"]),
        helper.make_node("Add", ["zeros", "rows"], ["output0"]),
    ]
    constants = {
        "axes": np.array([1, 2, 3]),
        "nothing": np.zeros(1, dtype=np.float32),
        "shape": np.array([-1, 1, 1]),
        "rows": output,
    }
    graph = helper.make_graph(
        nodes, "yolo", [image], [answer], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if names is not None:
        helper.set_model_props(model, {"names": names})
    onnx.save(model, path)
    return path
