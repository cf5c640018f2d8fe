"""Frames the package renders itself, one per kind of place, for a visitor who has none at hand."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic import LAYOUTS, SceneConfig, render_scene
from vgtok.serve.limits import RefusedError

SAMPLES = LAYOUTS
"""Names of the samples."""

_SEED = 7


@lru_cache(maxsize=len(SAMPLES))
def sample(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """The sample of that name as (height, width, 3) uint8 RGB, read-only: every visitor gets the same array."""
    if name not in SAMPLES:
        raise RefusedError(400, f"sample: '{name}' is not one of {', '.join(SAMPLES)}")
    pixels = render_scene(_SEED, width, height, SceneConfig(layout=name)).pixels
    pixels.setflags(write=False)
    return pixels
