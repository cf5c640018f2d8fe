"""`OnnxDetector`, an exported detector without torch: images of any kind in, results in each image's coordinates out.

numpy and OpenCV tokenize and suppress, onnxruntime runs the network.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE
from vgtok.detect.config import ANCHOR_IOU, MAX_DETECTIONS, MIN_SCORE, QUERY_IOU, SOFT_ANCHORS, Head
from vgtok.detect.result import Prepared, Result, Timings, listed_images
from vgtok.errors import InputError, VGTokError
from vgtok.export.description import Description, graph_inputs, uniform_grids
from vgtok.overlap import nms, soft_nms
from vgtok.tokenize.canvas import Canvas, CanvasSize, ImageLike, fit_canvas, read_image
from vgtok.tokenize.geometry import ROOT
from vgtok.tokenize.tokenizer import Tokenizer, preset
from vgtok.tokenize.tokens import Tokens

Detections = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""(K, 4) float32 corner boxes in canvas pixels, (K,) float32 scores, best first, and (K,) int64 labels."""


class OnnxDetector:
    """A file written by `vgtok export onnx`, called like a `vgtok.Detector`.

    >>> detector = vgtok.OnnxDetector("model.onnx")       # doctest: +SKIP
    >>> result = detector("frame.jpg")                    # doctest: +SKIP
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, device: str = "auto") -> None:
        """Open a file; `threads` is the number of threads of onnxruntime [default: one per core].

        `device` is cpu, cuda or cuda:N [default: a GPU if onnxruntime can use one].
        """
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
        providers = _providers(device, onnxruntime.get_available_providers())
        try:
            self.session = onnxruntime.InferenceSession(str(path), settings, providers=providers)
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise InputError(
                f"{path}: onnxruntime cannot read it ({next(iter(str(error).splitlines()), type(error).__name__)})"
            ) from None
        properties = self.session.get_modelmeta().custom_metadata_map
        self.description = Description.from_properties(properties, str(path))
        self.tokenizer_name = self.description.tokenizer

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
        """Share of the dense grid an image is read at, unless a call asks for another."""
        return self.description.tokens / self.description.extent.dense

    @property
    def head(self) -> Head:
        """The head whose boxes the graph returns."""
        return self.description.head

    @property
    def sparse_head(self) -> bool:
        """Whether the graph's head leaves out the positions in unsplit roots."""
        return self.description.sparse_head

    @property
    def precision(self) -> str:
        """The precision of the matrix products: float32 or int8."""
        return self.description.precision

    @overload
    def __call__(
        self,
        images: list[ImageLike] | tuple[ImageLike, ...],
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
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
        tokenizer: Tokenizer | None = None,
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
        tokenizer: Tokenizer | None = None,
        max_detections: int = MAX_DETECTIONS,
        score_threshold: float = DEFAULT_SCORE,
        head: Head | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Result | list[Result]:
        """Detect objects in one image, or in a list of images one after another.

        An image of another aspect ratio than the graph's is fitted into its canvas, and the rest filled with the mean
        color. `budget`, the share of the dense grid it is read at, and a `tokenizer` need a graph exported with a
        dynamic number of tokens, unless they give the number it has. `head` must be the graph's. Encoder and head are
        one graph: `timings.encoder` is its time, `timings.head` that of suppression. `value_range` is the (low, high)
        of black and white; floats need it. Images from `prepare` are run as they are.
        """
        if head is not None and head != self.head:
            raise InputError(f"head: this graph predicts by its {self.head} head; export another with --head {head}")
        results = []
        for image in listed_images(images, max_detections):
            if not isinstance(image, Prepared):
                image = self.prepare(image, budget=budget, tokenizer=tokenizer, value_range=value_range)
            results.append(self._detect(image, max_detections, score_threshold))
        return results if isinstance(images, list | tuple) else results[0]

    def fit(self, image: NDArray[np.uint8], size: CanvasSize) -> Canvas:
        """Fit an (H, W, 3) image on the canvas it is read from, which is the graph's own."""
        return self._filled(self._fitted(image))

    def tokenizer(self, budget: float | None = None, canvas: CanvasSize | None = None) -> Tokenizer:
        """Return the tokenizer a call uses, at a budget [default: the graph's] and a canvas [default: the graph's]."""
        return Tokenizer(
            self.budget if budget is None else budget,
            canvas=self.canvas if canvas is None else canvas,
            **preset(self.tokenizer_name),
        )

    def prepare(
        self,
        image: ImageLike,
        *,
        budget: float | None = None,
        tokenizer: Tokenizer | None = None,
        value_range: tuple[float, float] | None = None,
    ) -> Prepared:
        """Read, fit and tokenize an image for a later call; in another thread this overlaps with the network."""
        description = self.description
        if budget is not None and tokenizer is not None:
            raise InputError("budget: a tokenizer brings its own; give either budget= or tokenizer=")
        pixels = read_image(image, value_range)
        started = time.perf_counter()
        reader = tokenizer or self.tokenizer(budget)
        canvas = self._fitted(pixels)
        tokens = reader.partition(self._filled(canvas))
        if not description.dynamic and len(tokens) != description.tokens:
            raise InputError(
                f"budget: this graph reads every image as {description.tokens} tokens, not as {len(tokens)}; export "
                "with --dynamic to choose"
            )
        return Prepared(pixels, canvas, tokens, time.perf_counter() - started)

    def _detect(self, image: Prepared, max_detections: int, score_threshold: float) -> Result:
        marks = [time.perf_counter()]
        candidates = self.candidates(image.canvas, image.tokens)
        marks.append(time.perf_counter())
        size = (image.canvas.height, image.canvas.width)
        found = suppressed(candidates, self.description, size, max_detections)
        marks.append(time.perf_counter())
        return Result.from_canvas(
            found,
            image.canvas,
            score_threshold=score_threshold,
            class_names=self.names,
            tokens=_visible(image.tokens, size),
            timings=Timings(1e3 * image.seconds, *(1e3 * np.diff(marks)).tolist()),
            image=image.pixels,
        )

    def candidates(self, canvas: Canvas, tokens: Tokens) -> Detections:
        """Return the output of the graph for a canvas and the partition of its own, before suppression."""
        inputs = graph_inputs(self._filled(canvas), tokens, self.description.encoder, self.description.buckets)
        # Pixels beyond the image count as the mean color.
        inputs["valid"] = np.array([canvas.height, canvas.width], dtype=np.int64)
        boxes, scores, labels = self.session.run(None, inputs)
        # Where a sparse head has fewer candidates than the graph returns, the others have a score of zero.
        real = scores > 0 if self.sparse_head else slice(None)
        return boxes[real], scores[real], labels[real]

    def _fitted(self, pixels: NDArray[np.uint8]) -> Canvas:
        """Return the canvas of an image inside that of the graph."""
        wanted, canvas = self.description.extent, fit_canvas(pixels, self.canvas)
        if self.description.encoder.grid_multiple > 1 and (canvas.height, canvas.width) != (
            wanted.height,
            wanted.width,
        ):
            raise InputError(
                f"image: {canvas.source_width} x {canvas.source_height} px becomes {canvas.width} x {canvas.height} on "
                f"the canvas, but this graph of a model that pads was exported for {wanted.width} x {wanted.height}; "
                f"run 'vgtok export onnx' with --size {canvas.width}x{canvas.height}"
            )
        # An upright image on a wide canvas, or the other way around.
        scale = min(wanted.height / canvas.height, wanted.width / canvas.width)
        if scale >= 1:
            return canvas
        sides = int(canvas.height * scale), int(canvas.width * scale)
        return fit_canvas(pixels, (max(*sides, 1), max(min(sides), 1)))

    def _filled(self, canvas: Canvas) -> Canvas:
        """Return the canvas with the mean color around the image up to the size of the graph."""
        wanted = self.description.extent
        if uniform_grids(canvas.extent) == uniform_grids(wanted):
            return canvas
        mean = np.rint(self.description.encoder.mean).astype(np.uint8)
        pixels = np.tile(mean, (wanted.root_rows * ROOT, wanted.root_columns * ROOT, 1))
        pixels[: canvas.height, : canvas.width] = canvas.image
        return Canvas(pixels, wanted.height, wanted.width, canvas.source_height, canvas.source_width)


def _visible(tokens: Tokens, size: tuple[int, int]) -> Tokens:
    """Return the tokens that show part of an image of (height, width) on the canvas, as the partition of the image."""
    shown = (tokens.y < size[0]) & (tokens.x < size[1])
    return replace(
        tokens, x=tokens.x[shown], y=tokens.y[shown], sizes=tokens.sizes[shown], height=size[0], width=size[1]
    )


def _providers(device: str, present: Sequence[str]) -> list[Any]:
    """Return what onnxruntime is asked to run on, in order."""
    cpu, cuda = "CPUExecutionProvider", "CUDAExecutionProvider"
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise InputError(f"device: '{device}' is not one of auto, cpu, cuda, cuda:N")
    if kind == "cpu" or (kind == "auto" and cuda not in present):
        return [cpu]
    if cuda not in present:
        raise InputError(f"device: '{device}' is not available to onnxruntime; pip install onnxruntime-gpu")
    return [(cuda, {"device_id": int(number or 0)}), cpu]


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
