"""The floor every tokenizer is compared with: a score that knows nothing, so that a budget is spent anywhere."""

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from vgtok.tokenize.geometry import CELL, CanvasPixels, Pyramid, nest


@dataclass(frozen=True)
class RandomScore:
    """Random values, seeded by the frame's own pixels."""

    def __call__(self, frame: CanvasPixels) -> Pyramid:
        """A random value per cell, pooled to nodes."""
        generator = np.random.default_rng(crc32(frame.rgb.tobytes()))
        return nest(generator.random(frame.extent.grid_shape(CELL), dtype=np.float32))
