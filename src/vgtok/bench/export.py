"""Torch and onnxruntime in one run, by stage: the same weights, frames and partitions.

What leaves are times, ratios and the differences of the results. Weights are random: cost does not depend on them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vgtok.bench.timing import SEED, Cost, interleaved_medians
from vgtok.data.synthetic import render_scene
from vgtok.detect.config import detector_configuration
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.errors import VGTokError
from vgtok.export.description import graph_inputs
from vgtok.export.graph import HeadGraph
from vgtok.export.onnx_file import FEATURES, OUTPUTS, export_onnx
from vgtok.export.runtime import OnnxDetector
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.geometry import Extent
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

STAGES = ("encoder", "head", "whole")


@dataclass(frozen=True)
class StageCost:
    """Median milliseconds per frame of one stage; a `ratio` above 1 means onnxruntime is faster.

    The encoder goes from pixels and tokens to a map, the head from there to candidates, the whole from image to result.
    """

    stage: str
    torch_ms: float
    onnx_ms: float
    ratio: float


@dataclass(frozen=True)
class ExportCost(Cost):
    """The cost of every stage, and the largest differences between the two.

    Differences of boxes are shares of the longer side of the frame; features are those between encoder and head.
    `int8_ms` is the whole with 8-bit matrix products, and `int8_ratio` above 1 means that it is faster than float32 in
    onnxruntime.
    """

    config: str
    width: int
    height: int
    tokens: int
    frames: int
    repeats: int
    threads: int
    file_mb: float
    int8_file_mb: float
    int8_ms: float
    int8_ratio: float
    stages: tuple[StageCost, ...]
    features_difference: float
    scores_difference: float
    boxes_difference: float


def measure_export(config: str, size: tuple[int, int], budget: float, frames: int, repeats: int) -> ExportCost:
    """Time a detector on rendered frames of `size` (width, height) at a budget, both ways in turn."""
    torch.manual_seed(0)
    detector = Detector(_spread(CoDetr(detector_configuration(config))), canvas=size)
    images = [render_scene(SEED + number, *size).pixels for number in range(frames)]
    tokenizer = Tokenizer(budget=budget, canvas=size)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        canvases = [fit_canvas(image, size) for image in images]
        tokens = [tokenizer.partition(canvas) for canvas in canvases]
        eight = Path(folder) / "eight.onnx"
        for target in (path, eight):
            export_onnx(detector, target, size=size, tokens=len(tokens[0]), name=config, int8=target == eight)
        threads = torch.get_num_threads()
        exported, exported_eight = (OnnxDetector(file, threads=threads) for file in (path, eight))
        both = _Both(detector, exported, path, canvases, tokens, threads)
        times = interleaved_medians(
            {
                **{f"{library} {stage}": run for (library, stage), run in both.stages().items()},
                "torch whole": lambda: [detector(image, budget=budget) for image in images],
                "onnx whole": lambda: [exported(image) for image in images],
                "int8 whole": lambda: [exported_eight(image) for image in images],
            },
            repeats,
        )
        exact_mb, eight_mb = (file.stat().st_size / 1e6 for file in (path, eight))
        features, scores, boxes = both.differences()
    stages = tuple(
        StageCost(
            stage,
            times[f"torch {stage}"] / frames,
            times[f"onnx {stage}"] / frames,
            times[f"torch {stage}"] / times[f"onnx {stage}"],
        )
        for stage in STAGES
    )
    return ExportCost(
        config,
        *size,
        len(tokens[0]),
        frames,
        repeats,
        threads,
        exact_mb,
        eight_mb,
        times["int8 whole"] / frames,
        times["onnx whole"] / times["int8 whole"],
        stages,
        features,
        scores,
        boxes / max(size),
    )


def _spread(model: CoDetr) -> CoDetr:
    """Move every weight a little: proposals of a fresh model score so alike that rounding decides their order."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model


class _Both:
    """Encoder and head of one detector in torch and, split at the feature map, in onnxruntime."""

    def __init__(
        self,
        detector: Detector,
        exported: OnnxDetector,
        path: Path,
        canvases: Sequence[Canvas],
        tokens: Sequence[Tokens],
        threads: int,
    ) -> None:
        description = exported.description
        self.model, self.tokens, self.sparse_head = detector.model, tokens, detector.sparse_head
        self.head = HeadGraph(detector.model, Extent(description.height, description.width), detector.head)
        self.pixels = [torch.from_numpy(canvas.image.copy()).permute(2, 0, 1) for canvas in canvases]
        self.inputs = [
            graph_inputs(canvas, partition, description.encoder, description.buckets)
            for canvas, partition in zip(canvases, tokens, strict=True)
        ]
        self.onnx_encoder = _part(path, list(self.inputs[0]), [FEATURES], threads)
        self.onnx_head = _part(path, [FEATURES], list(OUTPUTS), threads)
        self.maps = [self.torch_encoder(number) for number in range(len(tokens))]

    def torch_encoder(self, number: int) -> torch.Tensor:
        """Return the (1, D, rows, columns) feature map of one frame."""
        with torch.inference_mode():
            features: torch.Tensor = self.model.encoder([self.pixels[number]], [self.tokens[number]]).maps[0][None]
            return features

    def torch_head(self, number: int) -> list[NDArray[Any]]:
        """Return boxes, scores and labels from the feature map of one frame."""
        with torch.inference_mode():
            features, tokens = self.maps[number], [self.tokens[number]]
            sites = self.model.sites((features[0],), tokens)[0] if self.sparse_head else None
            return [part.numpy() for part in self.head(features, sites)]

    def stages(self) -> dict[tuple[str, str], Callable[[], Any]]:
        """Return functions that run all frames, by library and stage."""
        every = range(len(self.tokens))
        return {
            ("torch", "encoder"): lambda: [self.torch_encoder(number) for number in every],
            ("onnx", "encoder"): lambda: [self.onnx_encoder(inputs) for inputs in self.inputs],
            ("torch", "head"): lambda: [self.torch_head(number) for number in every],
            ("onnx", "head"): lambda: [self.onnx_head({FEATURES: features.numpy()}) for features in self.maps],
        }

    def differences(self) -> tuple[float, float, float]:
        """Return the largest differences of features, scores and boxes (px); each head reads its own encoder's map."""
        largest = np.zeros(3)
        for number, inputs in enumerate(self.inputs):
            features = self.onnx_encoder(inputs)[0]
            found, expected = self.onnx_head({FEATURES: features}), self.torch_head(number)
            apart = ((features, self.maps[number].numpy()), (found[1], expected[1]), (found[0], expected[0]))
            largest = np.maximum(largest, [np.abs(one - other).max() for one, other in apart])
        features_apart, scores_apart, boxes_apart = largest.tolist()
        return features_apart, scores_apart, boxes_apart


def _part(
    path: Path, inputs: list[str], outputs: list[str], threads: int
) -> Callable[[dict[str, NDArray[Any]]], list[NDArray[Any]]]:
    """Return the part of a graph between two sets of names, ready to run."""
    try:
        import onnx
        import onnxruntime
        from onnx.utils import Extractor
    except ImportError as error:
        raise VGTokError(f"bench export: {error.name} is not installed; pip install 'vgtok[export]'") from None
    part = Extractor(onnx.load(path)).extract_model(inputs, outputs)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(part.SerializeToString(), settings, providers=["CPUExecutionProvider"])

    def run(arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        found: list[NDArray[Any]] = session.run(outputs, arrays)
        return found

    return run
