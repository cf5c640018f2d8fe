"""What tokenizing one 2048 x 1152 frame costs on one thread, against two baselines anyone can reproduce.

The first is six 8-bit OpenCV top-hats on the same canvas, a naive version of the paper's score. The second is decoding
and resizing the JPEG, which every pipeline needs.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.bench.timing import SEED, Cost, in_own_process, interleaved_medians, peak_extra_megabytes
from vgtok.data.synthetic import render_scene
from vgtok.tokenize.canvas import Canvas, fit_canvas, read_image
from vgtok.tokenize.scores import TOP_HAT_WIDTHS
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

_PERCENTILE_AT_40 = 74.82


@dataclass(frozen=True)
class TokenizerCost(Cost):
    """Medians in milliseconds on one thread, their ratios, and peak memory on top of the canvas."""

    frame: str
    repeats: int
    tokenize_ms: float
    yardstick_ms: float
    decode_resize_ms: float
    budget_ms: float
    tokenize_over_yardstick: float
    tokenize_over_decode_resize: float
    budget_over_percentile: float
    peak_extra_mb: float | None


def measure_tokenizer(image: Path | None, repeats: int) -> TokenizerCost:
    """Time the default tokenizer (score, gate and split from the RGB canvas) on a frame, by default a rendered one."""
    data = in_own_process(_rendered_jpeg) if image is None else image.read_bytes()
    canvas = _canvas(data)
    grey = np.asarray(cv2.cvtColor(canvas.image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        times = interleaved_medians(
            {
                "tokenize": partial(_partition_by_percentile, canvas),
                "budget": partial(Tokenizer(budget=0.40).partition, canvas),
                "yardstick": partial(_six_top_hats, grey),
                "decode_resize": partial(_canvas, data),
            },
            repeats,
        )
    finally:
        cv2.setNumThreads(threads)
    return TokenizerCost(
        frame="rendered" if image is None else image.name,
        repeats=repeats,
        tokenize_ms=times["tokenize"],
        yardstick_ms=times["yardstick"],
        decode_resize_ms=times["decode_resize"],
        budget_ms=times["budget"],
        tokenize_over_yardstick=times["tokenize"] / times["yardstick"],
        tokenize_over_decode_resize=times["tokenize"] / times["decode_resize"],
        budget_over_percentile=times["budget"] / times["tokenize"],
        peak_extra_mb=peak_extra_megabytes(partial(_warm_canvas, data), _partition_by_percentile),
    )


def _partition_by_percentile(canvas: Canvas) -> Tokens:
    return Tokenizer(percentile=_PERCENTILE_AT_40).partition(canvas)


def _six_top_hats(grey: NDArray[np.uint8]) -> list[Any]:
    elements = [np.ones((width, width), dtype=np.uint8) for width in TOP_HAT_WIDTHS]
    kinds = (cv2.MORPH_TOPHAT, cv2.MORPH_BLACKHAT)
    return [cv2.morphologyEx(grey, kind, element) for element in elements for kind in kinds]


def _canvas(data: bytes) -> Canvas:
    return fit_canvas(read_image(data))


def _warm_canvas(data: bytes) -> Canvas:
    """Return the canvas, after a small frame has allocated the buffers of every library."""
    cv2.setNumThreads(1)
    canvas = _canvas(data)
    _partition_by_percentile(fit_canvas(np.ascontiguousarray(canvas.pixels[:64, :64]), "native"))
    return canvas


def _rendered_jpeg() -> bytes:
    """Return a rendered frame of the usual size of VisDrone as JPEG."""
    scene = render_scene(seed=SEED, width=1360, height=765)
    encoded, data = cv2.imencode(".jpg", cv2.cvtColor(scene.pixels, cv2.COLOR_RGB2BGR))
    assert encoded
    return bytes(data)
