"""Buffers a thread reuses from frame to frame: fresh pages cost more than the arithmetic done in them."""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_buffers = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """This thread's buffer of that name as an array of undefined content; valid until the name is asked for again."""
    held: dict[str, NDArray[np.uint8]] = _buffers.__dict__
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if name not in held or held[name].size < size:
        held[name] = np.empty(size, dtype=np.uint8)
    return held[name][:size].view(dtype).reshape(shape)
