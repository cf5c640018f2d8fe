"""`YoloOnnx`: a YOLO exported to ONNX as a callback for a slicer; RGB pixels in, boxes in their coordinates out.

Three outputs are read: (B, 4 + C, N) of YOLOv8 and v11, (B, N, 5 + C) of YOLOv5 and v7, and (B, N, 6) of files that
suppress by themselves. numpy and OpenCV prepare and suppress, onnxruntime runs the network.
"""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.names import COCO
from vgtok.overlap import nms

Boxes = tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]]
"""(K, 4) x0 y0 x1 y1 in pixels of the image, (K,) scores, best first, and (K,) labels."""

Kind = Literal["columns", "rows", "finished"]
"""Output of a network: candidates in columns, in rows with an objectness, or finished detections in rows."""

_GRAY = 114
"""Padding around an image, as in training."""
_STRIDES = ((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64))
_MOST = 300
"""Most detections of one image, as in the exporters' own prediction."""


class YoloOnnx:
    """A YOLO detector in an ONNX file.

    >>> detector = YoloOnnx("yolov8n.onnx")               # doctest: +SKIP
    >>> boxes, scores, labels = detector(pixels)          # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        *,
        score_threshold: float = 0.001,
        iou_threshold: float = 0.7,
        size: int = 640,
        threads: int | None = None,
    ) -> None:
        """Open a file; `size` is the side of the square images are fitted to if the file leaves it open.

        `threads` is the number of threads of onnxruntime [default: one per core].
        """
        self.path = Path(path)
        self.score_threshold, self.iou_threshold = score_threshold, iou_threshold
        self.session = _opened(self.path, threads)
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        shape = inputs[0].shape if inputs else []
        if len(inputs) != 1 or len(shape) != 4 or (isinstance(shape[1], int) and shape[1] != 3):
            raise InputError(f"{path}: not a YOLO export, which takes one (batch, 3, height, width) input")
        if len(outputs) > 1 and len(outputs[0].shape or ()) != 3:
            raise InputError(f"{path}: not a YOLO export with one output; export it for detection, without masks")
        self.batch = shape[0] if isinstance(shape[0], int) else None
        properties = self.session.get_modelmeta().custom_metadata_map
        own = _literal(properties.get("imgsz"), list)
        sides = [side for side in own or () if isinstance(side, int) and side > 0]
        height, width = sides if len(sides) == 2 else (size, size)
        self.height = shape[2] if isinstance(shape[2], int) else height
        self.width = shape[3] if isinstance(shape[3], int) else width
        self._type = np.float16 if "float16" in inputs[0].type else np.float32
        listed = _literal(properties.get("names"), dict) or {}
        self._listed = {key: str(name) for key, name in listed.items() if isinstance(key, int)}
        count = _class_count(outputs[0].shape, (self.height, self.width))
        self.names = self._class_names(count if count is not None else max(self._listed, default=len(COCO) - 1) + 1)

    def __call__(self, image: NDArray[np.uint8]) -> Boxes:
        """Detect in (H, W, 3) uint8 RGB pixels."""
        return self.detect([image])[0]

    def detect(self, images: Sequence[NDArray[np.uint8]]) -> list[Boxes]:
        """Detect in several images, in as large batches as the file takes."""
        step = self.batch or max(len(images), 1)
        found: list[Boxes] = []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            fitted = [self._fitted(image) for image in part]
            # A file for a fixed number of images takes no fewer.
            planes = [one[0] for one in fitted] + [fitted[0][0]] * (step - len(part))
            output = self.session.run(None, {self.session.get_inputs()[0].name: np.stack(planes)})[0]
            rows = _rows(np.asarray(output, dtype=np.float32), (self.height, self.width), self.path)
            for image, (_, scale, left, top), own in zip(part, fitted, rows, strict=False):
                found.append(self._placed(own, image.shape[:2], scale, left, top))
        return found

    def _class_names(self, count: int) -> tuple[str, ...]:
        known = dict(enumerate(COCO)) if count == len(COCO) else {}
        return tuple(self._listed.get(label, known.get(label, f"class {label}")) for label in range(count))

    def _fitted(self, image: NDArray[np.uint8]) -> tuple[NDArray[Any], float, int, int]:
        """Return the (3, H, W) input for an image, its scale there, and the padding on its left and top."""
        height, width = image.shape[:2]
        scale = min(self.height / height, self.width / width)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        left, top = (self.width - inner[0]) // 2, (self.height - inner[1]) // 2
        square = np.full((self.height, self.width, 3), _GRAY, dtype=np.uint8)
        square[top : top + inner[1], left : left + inner[0]] = cv2.resize(image, inner, interpolation=method)
        planes = (square.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).astype(self._type)
        return planes, scale, left, top

    def _placed(self, rows: NDArray[np.float32], size: tuple[int, int], scale: float, left: int, top: int) -> Boxes:
        """Suppress (N, 6) candidates x0 y0 x1 y1 score label and place them in the image."""
        rows = rows[rows[:, 4] >= self.score_threshold]
        labels = rows[:, 5].astype(np.int64)
        values: NDArray[Any] = rows[:, 4]
        kept = nms(rows[:, :4], values, labels, self.iou_threshold)[:_MOST]
        boxes = (rows[kept, :4].astype(np.float64) - (left, top, left, top)) / scale
        boxes = np.clip(boxes, 0, (size[1], size[0], size[1], size[0]))
        return boxes, rows[kept, 4], labels[kept]


def _opened(path: Path, threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise VGTokError("YoloOnnx: onnxruntime is not installed; pip install 'vgtok[export]'") from None
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    settings = onnxruntime.SessionOptions()
    if threads is not None:
        settings.intra_op_num_threads = threads
    present = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in present]
    try:
        return onnxruntime.InferenceSession(str(path), settings, providers=providers)
    except Exception as error:  # onnxruntime's errors have no base of their own
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path}: onnxruntime cannot read it ({reason})") from None


def _literal(text: str | None, kind: type) -> Any:
    """Return the list or dictionary a property spells, or None; properties are text from anyone."""
    try:
        value = ast.literal_eval(text or "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def output_kind(shape: Sequence[int], size: tuple[int, int]) -> Kind | None:
    """Return what an output of (B, a, b) values is for an input of (height, width) px; None if it is none of them."""
    if len(shape) != 3:
        return None
    first, second = shape[1:]
    cells = {sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in strides) for strides in _STRIDES}
    if second in cells and first > 4:
        return "columns"
    # One class and an objectness are six values too: their number of candidates is that of the grid.
    if (first in cells or first in {3 * count for count in cells}) and second > 5:
        return "rows"
    if second == 6:
        return "finished"
    if second > first > 4:
        return "columns"
    return "rows" if first > second > 5 else None


def _class_count(shape: Sequence[Any] | None, size: tuple[int, int]) -> int | None:
    """Return the number of classes, if the shape of the output says so."""
    if shape is None or not all(isinstance(side, int) for side in shape[1:]):
        return None
    kind = output_kind(shape, size)
    return {"columns": shape[1] - 4, "rows": shape[-1] - 5}.get(kind or "")


def _rows(output: NDArray[np.float32], size: tuple[int, int], path: Path) -> list[NDArray[np.float32]]:
    """Return the (N, 6) candidates x0 y0 x1 y1 score label of each image, in pixels of the input."""
    kind = output_kind(output.shape, size)
    if kind is None:
        raise InputError(
            f"{path}: its output {output.shape} is no YOLO's; export (batch, 4 + classes, boxes), (batch, boxes, 5 + "
            "classes) or (batch, boxes, 6)"
        )
    if kind == "finished":
        return list(output)
    if kind == "columns":
        output = output.transpose(0, 2, 1)
        centers, scores = output[..., :4], output[..., 4:]
    else:
        centers, scores = output[..., :4], output[..., 5:] * output[..., 4:5]
    labels = scores.argmax(axis=2)
    best = np.take_along_axis(scores, labels[..., None], axis=2)
    half = centers[..., 2:] / 2
    corners = np.concatenate([centers[..., :2] - half, centers[..., :2] + half], axis=2)
    return list(np.concatenate([corners, best, labels[..., None].astype(np.float32)], axis=2))
