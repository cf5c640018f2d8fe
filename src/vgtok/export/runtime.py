"""`OnnxDetector`, an exported detector without torch: images of any kind in, results in each image's coordinates out.

numpy and OpenCV tokenize and suppress, onnxruntime runs the network.
"""

import time
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE
from vgtok.detect.config import ANCHOR_IOU, MAX_DETECTIONS, MIN_SCORE, QUERY_IOU, SOFT_ANCHORS, Head
from vgtok.detect.result import Result, Timings, read_images
from vgtok.errors import InputError, VGTokError
from vgtok.export.description import Description, graph_inputs, uniform_grids
from vgtok.overlap import nms, soft_nms
from vgtok.tokenize.canvas import Canvas, ImageLike, fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

Detections = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""(K, 4) float32 corner boxes in canvas pixels, (K,) float32 scores, best first, and (K,) int64 labels."""


class OnnxDetector:
    """A file written by `vgtok export onnx`, called like a `vgtok.Detector`.

    >>> detector = vgtok.OnnxDetector("model.onnx")       # doctest: +SKIP
    >>> result = detector("frame.jpg")                    # doctest: +SKIP
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        """Open a file; `threads` is the number of threads of onnxruntime [default: one per core]."""
        try:
            import onnxruntime
        except ImportError:
            raise VGTokError("OnnxDetector: onnxruntime is not installed; pip install onnxruntime") from None
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such file; write one with 'vgtok export onnx'")
        settings = onnxruntime.SessionOptions()
        if threads is not None:
            settings.intra_op_num_threads = threads
        present = onnxruntime.get_available_providers()
        providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in present]
        try:
            self.session = onnxruntime.InferenceSession(str(path), settings, providers=providers)
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise InputError(
                f"{path}: onnxruntime cannot read it ({next(iter(str(error).splitlines()), type(error).__name__)})"
            ) from None
        properties = self.session.get_modelmeta().custom_metadata_map
        self.description = Description.from_properties(properties, str(path))

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in label order."""
        return self.description.names

    @property
    def canvas(self) -> tuple[int, int]:
        """(width, height) of the canvas every image is fitted to."""
        return self.description.width, self.description.height

    @property
    def budget(self) -> float:
        """The share of tokens an image is read at by default."""
        return self.description.tokens / self.description.extent.dense

    @property
    def head(self) -> Head:
        """The head that predicts, a part of the graph."""
        return self.description.head

    @overload
    def __call__(
        self,
        images: list[ImageLike] | tuple[ImageLike, ...],
        *,
        budget: float | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> list[Result]: ...

    @overload
    def __call__(
        self,
        images: ImageLike,
        *,
        budget: float | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Result: ...

    def __call__(
        self,
        images: Any,
        *,
        budget: float | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Result | list[Result]:
        """Detect objects in one image, or in a list of images one after another.

        An image must have the aspect ratio the graph was exported for. `budget`, the share of the dense grid it is read
        at, needs a graph exported with a dynamic number of tokens; `head` can only be that of the graph. Encoder and
        head are one graph: `timings.encoder` is its time, `timings.head` that of suppression. `value_range` is the
        (low, high) of black and white; floats need it.
        """
        description = self.description
        if budget not in (None, self.budget) and not description.dynamic:
            raise InputError(
                f"budget: this graph reads every image as {description.tokens} tokens; export with --dynamic to choose"
            )
        if head not in (None, self.head):
            raise InputError(f"head: this graph predicts by {self.head}; export another with --head {head}")
        reader = Tokenizer(budget=self.budget if budget is None else budget, canvas=self.canvas)
        pixels = read_images(images, max_detections, value_range)
        results = [self._detect(image, reader, max_detections, score_threshold) for image in pixels]
        return results if isinstance(images, list | tuple) else results[0]

    def _detect(
        self, pixels: NDArray[np.uint8], reader: Tokenizer, max_detections: int, score_threshold: float
    ) -> Result:
        marks = [time.perf_counter()]
        canvas = self._fitted(fit_canvas(pixels, reader.canvas))
        tokens = reader.partition(canvas)
        marks.append(time.perf_counter())
        candidates = self.candidates(canvas, tokens)
        marks.append(time.perf_counter())
        found = suppressed(candidates, self.description, (canvas.height, canvas.width), max_detections)
        marks.append(time.perf_counter())
        return Result.from_canvas(
            found,
            canvas,
            score_threshold=score_threshold,
            class_names=self.names,
            tokens=tokens,
            timings=Timings(*(1e3 * np.diff(marks)).tolist()),
            image=pixels,
        )

    def candidates(self, canvas: Canvas, tokens: Tokens) -> Detections:
        """Return the output of the graph for a canvas and its partition, before suppression."""
        inputs = graph_inputs(canvas, tokens, self.description.encoder, self.description.buckets)
        boxes, scores, labels = self.session.run(None, inputs)
        return boxes, scores, labels

    def _fitted(self, canvas: Canvas) -> Canvas:
        """Return the canvas; raise unless the graph was exported for its size."""
        wanted = self.description.extent
        fits = uniform_grids(canvas.extent) == uniform_grids(wanted)
        if self.description.encoder.grid_multiple > 1:
            # A model that pads depends on the exact size of the image, a graph on its size in cells alone.
            fits = (canvas.height, canvas.width) == (wanted.height, wanted.width)
        if not fits:
            raise InputError(
                f"image: {canvas.source_width} x {canvas.source_height} px becomes {canvas.width} x {canvas.height} on "
                f"the canvas, but this graph was exported for {wanted.width} x {wanted.height}; crop or pad the image "
                f"to that ratio, or run 'vgtok export onnx' with --size {canvas.width}x{canvas.height}"
            )
        return canvas


def suppressed(candidates: Detections, description: Description, size: tuple[int, int], most: int) -> Detections:
    """Clip candidates to `size` (height, width), suppress them as the head does, and return at most `most`."""
    boxes, scores, labels = candidates
    height, width = size
    boxes = np.clip(boxes, 0, np.array([width, height, width, height], dtype=np.float32))
    if description.head == "atss" and description.atss_suppression == "hard":
        kept = nms(boxes, scores, labels, ANCHOR_IOU, most)
        return boxes[kept], scores[kept], labels[kept]
    threshold = QUERY_IOU
    if description.head == "atss":
        threshold, most = ANCHOR_IOU, min(most, SOFT_ANCHORS)
    kept, values = soft_nms(boxes, scores, labels, threshold, MIN_SCORE)
    return boxes[kept[:most]], values[:most], labels[kept[:most]]
