"""What a detector costs on this machine: a frame from pixels to boxes.

Weights are random: cost does not depend on them.
"""

import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from vgtok.bench.timing import process_peak_megabytes
from vgtok.data.synthetic import render_scene
from vgtok.detect.config import detector_configuration
from vgtok.detect.model import CoDetr
from vgtok.encode.dense import encode_dense
from vgtok.encode.flops import default_threads
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.images import read_image
from vgtok.tokenize.tokenizer import Tokenizer

_SEED = 7


@dataclass(frozen=True)
class DetectorCost:
    """Best times in seconds of one frame by stage, and the most memory the process ever had."""

    config: str
    budget: float
    height: int
    width: int
    tokens: int
    threads: int
    tokenize_s: float
    encode_s: float
    detect_s: float
    process_peak_mb: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)


@dataclass(frozen=True)
class Speedup:
    """Best times in seconds of one frame, dense and at a budget, by stage; the dense model needs no tokenizer."""

    config: str
    budget: float
    tokens: int
    threads: int
    dense_encode_s: float
    dense_detect_s: float
    tokenize_s: float
    encode_s: float
    detect_s: float

    @property
    def encoder(self) -> float:
        """How many times faster the encoder is."""
        return self.dense_encode_s / self.encode_s

    @property
    def whole(self) -> float:
        """How many times faster pixels become boxes, tokenizer included."""
        dense = self.dense_encode_s + self.dense_detect_s
        return dense / (self.tokenize_s + self.encode_s + self.detect_s)

    @property
    def allowed(self) -> float:
        """What Amdahl's law allows the whole: the head costs what it costs, and a tokenizer would be free."""
        dense = self.dense_encode_s + self.dense_detect_s
        return dense / (self.dense_detect_s + self.dense_encode_s / self.encoder)

    def to_dict(self) -> dict[str, Any]:
        """The fields and ratios as JSON has them."""
        ratios = {"encoder_speedup": self.encoder, "whole_speedup": self.whole, "amdahl_allows": self.allowed}
        return {**asdict(self), **ratios, "share_of_allowed": self.whole / self.allowed}


def measure_detector(config: str, image: Path | None, budget: float, repeats: int) -> DetectorCost:
    """Run one 2048 x 1152 frame, a rendered one where none is given, from pixels to boxes."""
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(config)).eval()
    pixels = render_scene(_SEED).pixels if image is None else read_image(image)
    canvas = fit_canvas(pixels)
    tokenizer = Tokenizer(budget=budget)
    frame = torch.from_numpy(canvas.image).permute(2, 0, 1)
    rounds = []
    with torch.inference_mode():
        for _ in range(repeats):
            marks = [time.perf_counter()]
            tokens = tokenizer.partition(canvas)
            marks.append(time.perf_counter())
            maps = model.encoder([frame], [tokens]).maps
            marks.append(time.perf_counter())
            model.predict_maps(maps, [(tokens.height, tokens.width)], 500)
            marks.append(time.perf_counter())
            rounds.append([after - before for before, after in pairwise(marks)])
    best = [min(times) for times in zip(*rounds, strict=True)]
    return DetectorCost(
        config,
        budget,
        tokens.height,
        tokens.width,
        len(tokens),
        default_threads(),
        best[0],
        best[1],
        best[2],
        process_peak_megabytes(),
    )


def measure_speedup(config: str, image: Path | None, budget: float, repeats: int) -> Speedup:
    """Run one 2048 x 1152 frame densely and at a budget, in turn, so that a busy machine slows both alike."""
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(config)).eval()
    canvas = fit_canvas(render_scene(_SEED).pixels if image is None else read_image(image))
    tokenizer, size = Tokenizer(budget=budget), [(canvas.height, canvas.width)]
    frame = torch.from_numpy(canvas.image.copy()).permute(2, 0, 1)
    rounds = []
    with torch.inference_mode():
        for _ in range(repeats + 1):
            marks = [time.perf_counter()]
            maps = encode_dense(model.encoder, frame[None]).maps
            marks.append(time.perf_counter())
            model.predict_maps(maps, size, 500)
            marks.append(time.perf_counter())
            tokens = tokenizer.partition(canvas)
            marks.append(time.perf_counter())
            maps = model.encoder([frame], [tokens]).maps
            marks.append(time.perf_counter())
            model.predict_maps(maps, size, 500)
            marks.append(time.perf_counter())
            rounds.append([after - before for before, after in pairwise(marks)])
    # The first round warms up and does not count.
    best = [min(times) for times in zip(*rounds[1:], strict=True)]
    return Speedup(config, budget, len(tokens), default_threads(), *best)
